"""The state that all sessions and links of one broker share."""

from dataclasses import dataclass, field

import msgspec

from dovetail.broker.auth.session_owner import Ownership
from dovetail.broker.encoded_publish import Frames
from dovetail.broker.message_expiry import Expiring
from dovetail.broker.store.journal import Journal
from dovetail.codec.packets import Will
from dovetail.settings import Mqtt
from dovetail.stats import Counters, Gauges

RETAINED_SOURCE = "\0"
"""The `source` of retained messages that are delivered to a new subscription."""

GROUP_SOURCE = "\1"
"""The `source` of messages that only the picked session gets, such as those of a group."""


@dataclass(slots=True)
class Shared:
    """`now` is Unix seconds as of the event that is being handled."""

    limits: Mqtt
    journal: Journal = field(default_factory=Journal)
    counters: Counters = field(default_factory=Counters)
    gauges: Gauges = field(default_factory=Gauges)
    frames: Frames = field(default_factory=Frames)
    expiring: Expiring = field(default_factory=Expiring)
    ownership: Ownership = field(default_factory=Ownership)
    now: float = 0.0
    source: str = ""
    """The broker at which the current message was published; empty for this one."""

    @staticmethod
    def encode_will(will: Will) -> bytes:
        return msgspec.msgpack.encode(will)

    @staticmethod
    def decode_will(data: bytes) -> Will:
        return msgspec.msgpack.decode(data, type=Will)
