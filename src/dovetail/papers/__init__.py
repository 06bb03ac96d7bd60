"""Reproduction of the two papers. Nothing in the product imports this package.

reproduce.py         the commands `dovetail reproduce ...`
job.py               runs an experiment and writes its files
comparison_table.py  a paper's number beside ours, and the table of them as HTML
wildcard/            the wildcard paper's simulation (figures 4 to 6)
figure7/             the wildcard paper's figure 7, on a live broker
bluedove/            BlueDove's evaluation, under the simulator in sim/
"""
