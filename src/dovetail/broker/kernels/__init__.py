"""Compiled parts of a broker.

owners.py  the owners of boxes, each once, with the marks of its boxes together
"""
