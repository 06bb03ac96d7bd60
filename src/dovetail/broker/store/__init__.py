"""Data that survives a `kill -9`: the journal in memory, and SQLite on disk.

Read in this order:

    journal.py       rows that have to be on disk, and the callbacks that wait for them (pure)
    tables.py        the journal's rows as SQL (pure)
    sqlite.py        one thread writes one batch as one transaction
    database.py      the database file, its lock, and its errors
    disk_reserve.py  disk space that is kept for a full disk
    recovery.py      restores sessions, queues and retained messages at start (pure)
    integrity.py     checks the database before anything is written to it
    watermark.py     notes where the write-ahead log ended at the last commit
    repair.py        keeps the intact rows of a damaged folder: `dovetail repair`
"""
