"""The wildcard paper's simulation (section V, figures 4 to 6).

simulation.py  the sweep over cells: workload, searches, rows
comparison.py  the paper's numbers beside the measured ones
report.py      the page
"""
