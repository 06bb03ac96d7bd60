"""Compiled parts of the codec.

scan.py     finds the packets of a read buffer, and joins neighbours into runs
rewrite.py  writes a run as a receiver gets it, and its acknowledgements
pairs.py    finds the end of a series of user properties
"""
