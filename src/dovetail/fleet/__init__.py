"""Several nodes on one machine: `dovetail up`.

Read in this order:

    launch.py          starts nodes from options and a configuration file
    members.py         the name, folder and ports of each node
    supervisor.py      starts, watches, restarts and stops processes
    child.py           one of these processes, as the supervisor sees it
    member_process.py  the main program of such a process
"""
