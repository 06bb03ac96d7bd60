"""What survives a `kill -9`: the journal in memory, and SQLite on disk.

Read in this order:

    journal.py       rows that have to be on disk, and the callers that wait for them (pure)
    tables.py        the journal's rows as SQL (pure)
    sqlite.py        one thread writes one batch as one transaction
    database.py      the file, its lock, and its errors
    disk_reserve.py  room that is kept for a full disk
    recovery.py      rows to sessions, queues and retained messages at start (pure)
    integrity.py     checks the database before anything is written to it
    watermark.py     how far the write-ahead log had come
    repair.py        keeps what is whole in a damaged folder: `dovetail repair`
"""
