"""The simulator: the real core on a virtual clock and a seeded network. Pure.

    clock.py           virtual time
    network.py         datagrams that are delayed, lost, doubled and cut, from a seed
    connections.py     connections that are reliable until they break, from a seed

A whole world, in which matchers join, leave, crash and stall while publications flow:

    matching_world.py  brokers and matchers with real gossip
    matcher_node.py    the real matcher with a service time
    broker_node.py     a broker as far as matchers see it
    episodes.py        what happens to a cluster over minutes (BlueDove IV-C, IV-E)

How much matchers can take (BlueDove IV-B to IV-D):

    systems.py         the systems that the paper compares
    workload.py        the paper's subscriptions and publications, from a seed
    saturation.py      the highest rate that matchers can take
    queues.py          queues with service times, without frames and boxes
    box_counts.py      how many boxes each matcher holds
    capacity.py        what matchers could take at best

Gossip:

    gossip_cluster.py  a cluster of nodes that only gossip
    gossip_cost.py     what gossip costs a node
"""
