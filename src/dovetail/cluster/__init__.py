"""How nodes find each other and exchange frames, whatever their role.

Gossip, pure:

    gossip.py            spreads every node's records to every node
    membership.py        what a node knows of all nodes: versioned records
    detector.py          phi-accrual failure detection
    dialer.py            the nodes to dial, and the pauses between attempts
    addresses.py         host and port of a node
    replicated_state.py  which version of a node's state each peer has, and what waits for that

Connections:

    agent.py             a node in a live cluster: drives gossip with real connections
    transport.py         all connections of a node
    acceptor.py          accepts connections of other nodes
    peer_link.py         one connection: frames, handshake, pings
    handshake.py         both nodes prove that they have the cluster's secret (pure)
    secret.py            the file with that secret, and the keys made of it
    tls.py               TLS between nodes
    frames.py            length, kind and body (pure)
    frame_body.py        bodies to and from MessagePack (pure)

Settings and queries:

    link_settings.py     the settings of a node's links
    node_settings.py     link settings, seeds and secret, from a node's settings
    node_queries.py      queries of other nodes, for HTTP and commands
    query_messages.py    these queries as frames (pure)
"""
