"""What runs compiled: plain functions on plain arrays, the only code here that imports Numba.

One file a mechanism: `codes` turns borders and values into small integers and boxes into sort keys;
`lanes` compares 64 boxes at once; `leaves` puts boxes into leaves and takes them out; `matching`
finds the boxes of points. Each is tested against a few lines of NumPy.
"""
