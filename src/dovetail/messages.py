"""The publication as it travels inside Dovetail: decoded once, encoded for each kind of receiver.

A message does not change after it was made, but for `number`: the journal gives it one when the
first persistent session (or the set of retained messages) has to keep it; for `ordinal`, its place
among the retained messages; and for `stamp`, its place among those of all brokers.
"""


class Message:
    """One publication. Times are Unix seconds."""

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
        # As on the wire, those that are passed on untouched: payload format, content type, response
        # topic, correlation data, user properties. In their order [MQTT-3.3.2-18].
        self.properties = properties
        self.expires_at = expires_at
        self.origin = origin  # the client id of the publisher, for No Local
        self.stamp = stamp  # of a retained message in a cluster (broker/peering/stamps.py)
        self.is_orphan = is_orphan  # its publisher is gone: nobody is told if it is refused
        # The bytes that count against limits of queues.
        self.size = len(topic) + len(payload) + len(properties)
        self.number = 0  # on disk; 0: not there
        self.ordinal = 0  # rises with every message that is retained; 0: not retained
        self.references = 0  # how many deliveries and retained topics need it on disk

    def __repr__(self) -> str:
        return f"Message({self.topic!r}, {len(self.payload)} bytes, qos={self.qos})"
