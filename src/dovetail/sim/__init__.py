"""The simulator: the real core on a virtual clock and a seeded network. Pure.

    clock.py             the virtual clock
    network.py           datagrams that a seed delays, loses, doubles and cuts
    connections.py       connections that are reliable until they break

A whole cluster, in which matchers join, leave, crash and stall while publications flow:

    matching_cluster.py  brokers and matchers with real gossip
    matcher_node.py      the real matcher with a simulated service time
    broker_node.py       the part of a broker that matchers see
    scenarios.py         experiments of several minutes (BlueDove IV-C, IV-E)

The throughput of matchers (BlueDove IV-B to IV-D):

    systems.py           the systems that the paper compares, and the testbed
    workload.py          the paper's subscriptions and publications, from a seed
    saturation.py        a search for the highest rate that matchers sustain
    queues.py            a fast model: queues with service times, without frames and boxes
    box_counts.py        the number of boxes that each matcher holds
    capacity.py          the best throughput that any policy could reach

Gossip:

    gossip_cluster.py    a cluster of nodes that only gossip
    gossip_cost.py       the bytes that a node sends in gossip
"""
