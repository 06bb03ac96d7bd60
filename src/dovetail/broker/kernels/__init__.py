"""Compiled loops of a broker.

owners.py  finds the owners of boxes: each owner once, with the merged marks of its boxes
points.py  reads the attributes of a run of publications as numbers
"""
