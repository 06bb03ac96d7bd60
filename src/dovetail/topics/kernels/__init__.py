"""What runs compiled: plain functions on plain arrays, the only code that imports Numba.

One file a mechanism: `hashing` turns topics into hashes; `elements` says what a filter puts into a
sketch; `ledger` counts and sets bits; `bloom`, `lines` and `bank` search; `trie` is the exact
index; `probing` is what its table and the ledger's share. Hashes are tested against a plain-Python
oracle, everything built on them against `names.matches`.

Numbers are unsigned 64-bit throughout: Numba turns a mix of signed and unsigned into floats, and a
signed index costs a check for negative ones.

Compiled code is kept on disk (`compiling.py` says where), so that a process compiles nothing that
an earlier one did.
"""
