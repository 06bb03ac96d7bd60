"""The state that all sessions and links of one broker share."""

from dataclasses import dataclass, field

import msgspec

from dovetail.broker.auth.session_owner import OwnershipRules
from dovetail.broker.message_expiry import MessageExpiry
from dovetail.broker.publish_encoder import PublishEncoder
from dovetail.broker.store.journal import Journal
from dovetail.codec.packets import Will
from dovetail.settings import MqttSettings
from dovetail.stats import Counters, Gauges

RETAINED_SOURCE = "\0"
"""The `source` of retained messages that are delivered to a new subscription."""

GROUP_SOURCE = "\1"
"""The `source` of messages that only the picked session gets, such as those of a group."""


@dataclass(slots=True)
class SharedState:
    """Limits, journal, counters and clock of one broker.

    `now` is in Unix seconds, as of the event that is being handled.
    """

    limits: MqttSettings
    journal: Journal = field(default_factory=Journal)
    counters: Counters = field(default_factory=Counters)
    gauges: Gauges = field(default_factory=Gauges)
    publish_encoder: PublishEncoder = field(default_factory=PublishEncoder)
    message_expiry: MessageExpiry = field(default_factory=MessageExpiry)
    ownership: OwnershipRules = field(default_factory=OwnershipRules)
    now: float = 0.0
    source: str = ""
    """The broker at which the current message was published; empty for this one."""

    @staticmethod
    def encode_will(will: Will) -> bytes:
        return msgspec.msgpack.encode(will)

    @staticmethod
    def decode_will(data: bytes) -> Will:
        return msgspec.msgpack.decode(data, type=Will)
