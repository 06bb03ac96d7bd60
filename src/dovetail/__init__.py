"""Dovetail: publish/subscribe that joins MQTT topics and attribute ranges.

Commands and processes:

    cli/            the command line
    fleet/          several nodes on one machine: `dovetail up`
    node/           a broker, a matcher or both as one process
    process/        what every process needs: logs, ports, terminal, garbage collection

The service:

    broker/         MQTT sessions, and the way from a PUBLISH to its subscribers
    matcher/        finds the boxes that a publication falls in
    web/            HTTP of a node
    codec/          MQTT packets to and from bytes
    topics/         topic names, the exact index, sketches
    attributes/     spaces, where-clauses, boxes
    cluster/        gossip and links between nodes
    settings/       the configuration file

Around it:

    client/         `dovetail pub` and `dovetail sub`
    inspect/        `dovetail status`, `route`, `spaces`
    api/            the data that programs send and get over HTTP
    archive/        publications as Parquet files
    pipeline/       Spark: match, stream, serve, plan
    sim/            the simulator
    papers/         the experiments of the papers

Shared modules:

    limits.py       limits that packages share, each with its reason; most packages have their own
    errors.py       the errors that Dovetail raises on purpose
    messages.py     a publication inside Dovetail
    slices.py       long work in slices, so that no client delays the others
    stats.py        counters and gauges of a node
    compilation.py  compiles kernels, and keeps the results on disk
    warmup.py       compiles every kernel at set-up
"""

__version__ = "0.1.0"
