"""Several nodes on one machine: `dovetail up`.

Read in this order:

    launch.py          options and a file to running nodes
    members.py         the name, folder and ports of each node
    supervisor.py      start processes, watch them, start them again, stop them
    child.py           one of these processes, from the supervisor's side
    member_process.py  one of these processes, from the inside
"""
