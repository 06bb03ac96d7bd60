"""A reliability checker for clusters of MQTT brokers: `scripts/soak`.

Clients use a cluster of real broker processes while faults are injected. Every operation goes into
a history, a file of JSON lines. Checkers read the history and report which promises were kept.

    schedule, workload        pure: a seed decides which faults come and what clients do
    mqtt, topics, boxes       pure: packets, topic filters and where-clauses, written for this tool
    history, record           pure: events, and what they tell about each message and client
    checker/                  pure: one module for each kind of promise
    report, timeline          pure: history and verdicts to one HTML page

    connection, clients/      sockets: clients that obey MQTT through every fault
    cluster, node             processes: the brokers
    network, namespaces, relays, disks    the network between brokers, and their disks
    injector, runner, progress            the run

Nothing here imports the broker's code, except `node`, which starts a broker in a process of its
own, and `relays`, which reads which broker dials.
"""
