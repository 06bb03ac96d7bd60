"""Compiled parts of the box index: plain functions on plain arrays.

Each is tested against a few lines of NumPy.

    codes.py      borders and values as 16-bit codes, boxes as sort keys
    leaves.py     inserts boxes into leaves of up to 64, and removes them
    lanes.py      compares the 64 boxes of a leaf at once
    matching.py   finds the boxes that points fall in
    ascending.py  sorts small numbers and drops repeats
"""
