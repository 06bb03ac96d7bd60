"""A publication inside Dovetail: decoded once, encoded for each kind of receiver.

A message does not change after it was made, except for three fields:

- `number`: the journal assigns it when the first persistent session, or the retained messages,
  must keep the message on disk.
- `ordinal`: its position among the retained messages of this broker.
- `stamp`: its position among the retained messages of all brokers.
"""


class Message:
    """One publication. Times are Unix seconds."""

    packets = 1  # a run (broker/outgoing_run.py) has more

    __slots__ = (
        "expires_at",
        "is_orphan",
        "number",
        "ordinal",
        "origin",
        "payload",
        "properties",
        "qos",
        "references",
        "retain",
        "size",
        "stamp",
        "topic",
    )

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: bytes = b"",
        expires_at: float | None = None,
        origin: str = "",
        stamp: int = 0,
        is_orphan: bool = False,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        # Encoded as on the wire. The broker forwards these unchanged: payload format, content type,
        # response topic, correlation data, user properties, in their order [MQTT-3.3.2-18].
        self.properties = properties
        self.expires_at = expires_at
        self.origin = origin  # the client id of the publisher, for No Local
        self.stamp = stamp  # of a retained message in a cluster (broker/peering/stamps.py)
        self.is_orphan = is_orphan  # its publisher is gone: a refusal has no receiver
        # These bytes count against the limits of queues.
        self.size = len(topic) + len(payload) + len(properties)
        self.number = 0  # its number on disk; 0: not stored
        self.ordinal = 0  # rises with every retained message; 0: not retained
        self.references = 0  # deliveries and retained topics that need it on disk

    def __repr__(self) -> str:
        return f"Message({self.topic!r}, {len(self.payload)} bytes, qos={self.qos})"
