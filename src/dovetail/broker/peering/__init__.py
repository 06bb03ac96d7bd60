"""A broker among brokers: sketches, forwarding, shared state. Pure, except for two modules.

Read in this order:

    mesh.py              all parts together: frames come in, peers come and go
    peer_messages.py     the frames between brokers
    stream_messages.py   numbered messages that travel between publications
    peers.py             the other brokers, and what each is owed
    sketch_exchange.py   our sketch to all peers, theirs into the bank
    group_exchange.py    members of shared subscriptions, to all peers
    groups.py            which member of a group gets a publication
    forwarding.py        publications to the brokers that may need them
    outbox.py            QoS 1 and 2 publications for one peer, until it acknowledges them
    stream_positions.py  how far a peer's numbered stream was taken
    receiver.py          publications from peers
    tickets.py           an acknowledgement that waits for several peers
    stamps.py            which of two retained messages, or connections, is later
    retained_sync.py     retained messages from before two brokers met
    will_copies.py       wills that outlive their broker
    roaming/             a session follows its client to another broker
    broker_agent.py      connects gossip and links with the mesh (not pure)
    admin_queries.py     questions of people, passed on to other brokers (not pure)
"""
