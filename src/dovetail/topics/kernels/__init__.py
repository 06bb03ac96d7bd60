"""Compiled parts of topics: plain functions on plain arrays.

Hashes are tested against a plain-Python oracle, all that is built on them against `names.matches`.

    hashing.py   topics to hashes: a prefix's hash is extended level by level
    elements.py  the elements of a filter, which a sketch stores
    ledger.py    counts elements and sets bits
    bloom.py     searches in a plain Bloom filter: the paper's three methods
    lines.py     searches in our sketch: a node of the prefix tree is one cache line
    bank.py      searches in many sketches at once
    trie.py      the exact index
    probing.py   open addressing, shared by the ledger and the trie

Numbers are unsigned 64-bit throughout: Numba turns a mix of signed and unsigned into floats, and a
signed index costs a check for negative ones. Compiled code is kept on disk (`compilation.py`).
"""
