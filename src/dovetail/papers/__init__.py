"""Reproduction of the two papers. Nothing in the product imports this package.

reproduce.py    `dovetail reproduce`: the commands
job.py          from options to files
check_table.py  a paper's numbers beside ours, as HTML
wildcard/       the wildcard paper's simulation (figures 4 to 6)
figure7/        the wildcard paper's figure 7, on a live broker
bluedove/       BlueDove's evaluation, under the simulator in sim/
"""
