"""Compiled parts of the codec.

scan.py   finds the packets of a read buffer
pairs.py  finds the end of a series of user properties
"""
