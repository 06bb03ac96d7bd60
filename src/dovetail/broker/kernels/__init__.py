"""Compiled loops of a broker.

owners.py  finds the owners of boxes: each owner once, with the merged marks of its boxes
"""
