"""How nodes find each other and exchange frames, whatever their role.

Gossip, pure:

    gossip.py            how every node learns what every node has to tell
    membership.py        what a node knows of all nodes: versioned records
    detector.py          phi-accrual failure detection: dead, or only late?
    dialer.py            whom a node dials, and when it tries again
    addresses.py         host and port of a node
    replicated_state.py  a node's own state at its peers: versions, and what waits for them

Connections:

    agent.py             a node in a live cluster: drives gossip with real connections
    transport.py         all connections of a node
    acceptor.py          accepts connections of other nodes
    peer_link.py         one connection: frames, handshake, pings
    handshake.py         both nodes prove that they have the cluster's secret (pure)
    secret.py            the file with that secret
    tls.py               TLS between nodes
    frames.py            length, kind and body (pure)
    frame_body.py        bodies to and from MessagePack (pure)

Settings and questions:

    link_settings.py     what a node must be told before it has links
    node_settings.py     a node's part in its cluster, from its settings
    node_queries.py      questions of people, passed on to other nodes
    query_messages.py    these questions as frames (pure)
"""
