"""What every command and node needs from the operating system.

logs.py, log_repeats.py   log lines on standard error; repeated ones are counted, not written
terminal.py               the only module that prints; it makes remote text harmless
ports.py                  reserves a port by binding it
descriptors.py            limits on open files, and the share that clients may have
connection_slots.py       which unauthenticated connection is closed when too many are open
extras.py                 optional packages, installed when a command first needs them
garbage.py                the garbage collector during a start and while serving
"""
