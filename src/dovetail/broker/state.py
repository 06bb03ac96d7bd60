"""What all sessions and links of one broker share."""

from dataclasses import dataclass, field

import msgspec

from dovetail.broker.expiring import Expiring
from dovetail.broker.frames import Frames
from dovetail.broker.journal import Journal
from dovetail.broker.ownership import Ownership
from dovetail.broker.packets import Will
from dovetail.settings import Mqtt
from dovetail.stats import Counters, Gauges

RETAINED_SOURCE = "\0"
"""Of what is delivered because it was retained, and not because it is published now."""

GROUP_SOURCE = "\1"
"""Of what a session gets because a group picked it: nobody else does, wherever it came from."""


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
    """Which broker published what is being delivered; empty: this one."""

    @staticmethod
    def encode_will(will: Will) -> bytes:
        return msgspec.msgpack.encode(will)

    @staticmethod
    def decode_will(data: bytes) -> Will:
        return msgspec.msgpack.decode(data, type=Will)
