"""A broker: MQTT sessions, and the way from a PUBLISH to its subscribers.

Modules that say "Pure." touch no socket, clock or file: time, randomness and bytes are arguments.
The packages `net/` and `store/` and the `*_requests.py` modules connect them to the world.

A publication passes through these, in this order:

    client_link.py        one connection: bytes to packets
    intake.py             publications of a client: checked, passed on, acknowledged in order
    router.py             topic to route, cached
    route.py              a route: who gets a publication
    matcher_client.py     asks matchers which brokers have matching clauses
    dispatch.py           sends a publication along its route
    delivery.py           what one session gets of it
    session_sender.py     QoS 1 and 2 towards the client
    outlet.py             the outgoing half of a connection
    encoded_publish.py    a PUBLISH encoded once for each kind of receiver

Clients and sessions:

    core.py               the broker: its parts put together
    admission.py          CONNECT to CONNACK: who is let in
    keep_alive.py         how long a connection may be silent
    session.py            what the broker remembers of a client
    session_lifetime.py   take-over, expiry, wills
    subscribe.py          SUBSCRIBE and UNSUBSCRIBE
    subscription.py       a filter with its options
    outgoing_message.py   a message on its way to a session
    message_expiry.py     messages that expire in queues
    retained.py           the retained message of each topic
    retained_delivery.py  retained messages for a new subscription

Attributes and streams:

    publication_point.py  a publication as a point of its space
    clause_log.py         the clauses of a space as a log that a stream follows
    engine_backlog.py     publications whose clauses a stream on Spark evaluates
    engine_requests.py    that stream's requests
    archive_queue.py      rows that wait for the archive
    mailbox.py            a request for a handle, treated as a connection
    handle_requests.py    requests for handles on a running broker

Shared by all of them:

    shared_state.py       what sessions and links of one broker share
    timers.py             what happens later
    kernel_loader.py      loads kernels before the first client connects

What a broker reports:

    sys_topics.py         `$SYS/broker/...`
    reporter.py           status and routes, for `dovetail status` and `dovetail route`
    explanation.py        what a publication's attributes lead to
    standalone_queries.py answers about a cluster of one

Packages:

    auth/                 users, passwords, certificates, access rules
    net/                  listeners, sockets, TLS, WebSocket
    store/                what is on disk
    peering/              other brokers
    kernels/              compiled: whose boxes a point is in (owners.py)
"""
