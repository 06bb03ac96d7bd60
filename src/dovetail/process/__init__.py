"""One process and its operating system. Every command and every node uses these.

logs.py, log_repeats.py   log lines on standard error; repeats are counted, not written
terminal.py               the only module that prints; it makes remote text harmless
ports.py                  reserve a port by binding it
descriptors.py            limits on open files, and the share that clients may have
connection_slots.py       which unproven connection is closed when too many are open
extras.py                 optional packages, installed when a command first needs them
garbage.py                the garbage collector during a start
"""
