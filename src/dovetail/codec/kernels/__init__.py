"""Compiled parts of the codec.

scan.py   where packets begin and end in a read buffer
pairs.py  where a row of user properties ends
"""
