"""Compiled parts of a matcher.

grouping.py  the matches of many points, sorted by broker
"""
