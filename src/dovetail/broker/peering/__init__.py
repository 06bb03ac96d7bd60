"""A broker among brokers: sketches, forwarding, shared state. Pure, except for two modules.

Read in this order:

    mesh.py              all parts together: frames come in, peers come and go
    peer_messages.py     the frames between brokers
    control_messages.py  messages that travel between the publications of a stream
    peer_tables.py       what a broker knows of the others: the router searches it
    peers.py             the other brokers, each with its outbox
    sketch_exchange.py   sends our sketch to all peers, and puts theirs into the bank
    group_exchange.py    sends the members of our shared subscriptions to all peers
    groups.py            which member of a group gets a publication
    forwarder.py         sends publications to the brokers that may need them
    outbox.py            spools QoS 1 and 2 publications for one peer until it acknowledges them
    stream_positions.py  the last number that we have taken from each peer's stream
    receiver.py          delivers publications from peers
    tickets.py           an acknowledgement that waits for several peers
    stamps.py            which of two retained messages, or connections, is later
    retained_sync.py     fetches retained messages from before two brokers met
    will_copies.py       wills that outlive their broker
    roaming/             a session follows its client to another broker
    broker_agent.py      connects gossip and links with the mesh (not pure)
    admin_queries.py     passes people's questions on to other brokers (not pure)
"""
