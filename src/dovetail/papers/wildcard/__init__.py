"""The wildcard paper's simulation (section V, figures 4 to 6).

simulation.py  draws the workload, searches, and returns rows, cell by cell
comparison.py  the paper's numbers beside ours
report.py      the page
"""
