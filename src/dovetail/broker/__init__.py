"""A broker: MQTT sessions, and the way from a PUBLISH to its subscribers.

Modules that say "Pure." touch no socket, clock or file: time, randomness and bytes are arguments.
The packages `net/` and `store/` and the `*_requests.py` modules connect them to the world.

A publication passes through these:

    packet_reader.py      the bytes of a client: packets and runs
    joined_reads.py       plain publications of many clients, joined into runs
    router.py             topic to route, cached
    route.py              a route: who gets a publication
    route_cache.py        routes by topic, until a table that they depend on changes
    delivery.py           how one session gets a publication
    intake.py             publications of a client: checked and passed on
    run_dispatch.py       sends runs along their route: the usual way
    retained_runs.py      retains publications that nobody receives now, many at once
    dispatch.py           sends one publication along its route: QoS 2, rare features
    local_delivery.py     the last step: into the links and queues of sessions here
    other_brokers.py      what a broker asks of the others, and what a broker alone has instead
    pending_publication.py  publications that wait for matchers
    matcher_client.py     asks matchers which brokers have matching clauses
    outgoing_queue.py     what a session has to deliver: counted and on disk
    session_sender.py     QoS 1 and 2 towards the client
    acknowledgements.py   acknowledges the publications of a client, in order
    back_pressure.py      slows publishers down whose only receivers are behind
    client_link.py        one connection: its state, what is sent to it, its end
    publish_encoder.py    encodes a PUBLISH once for each kind of receiver

Clients and sessions:

    core.py               the broker: assembles all parts
    client_wire.py        what a connection needs of the network
    piece.py              the piece of a client's bytes that is taken at once
    admission.py          CONNECT to CONNACK: admits or refuses a client
    keep_alive.py         closes connections that are silent for too long
    session.py            the state that the broker keeps for a client
    session_lifetime.py   take-over, expiry, wills
    subscribe.py          SUBSCRIBE and UNSUBSCRIBE
    subscription.py       a filter with its options
    outgoing_message.py   a message on its way to a session
    outgoing_run.py       a run of QoS 1 messages on its way to a persistent session
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

    subscription_observer.py  hears of filters, groups and clauses that come and go
    session_observer.py   hears what happens to sessions
    shared_state.py       the state that sessions and links of one broker share
    timers.py             one action per key, at a later time
    kernel_loader.py      loads kernels before the first client connects

Reports:

    sys_topics.py         the broker's status under `$SYS/broker/`
    reporter.py           status and routes, for `dovetail status` and `dovetail route`
    explanation.py        how the attributes of a publication are matched
    standalone_queries.py answers about the cluster from a broker without one

Packages:

    auth/                 users, passwords, certificates, access rules
    net/                  listeners, sockets, TLS, WebSocket
    store/                the rows on disk
    peering/              other brokers
    kernels/              compiled: points of a run, owners of boxes
"""
