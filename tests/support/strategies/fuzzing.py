"""Fuzz the broker with hostile clients: `scripts/fuzz` is long, tests/broker/test_fuzz.py short.

A run consists of rounds. A round is some thousand events on one of four brokers (default settings,
with access rules, with few features, with tight limits). The seed determines everything. The broker
is the pure core, with a clock and a disk that the round controls; the disk may fail. After every
event:

- No exception was raised, and a closed link stays closed.
- Each client got whole packets, in a valid order, none larger than its limit, and none after a
  DISCONNECT.
- A client of version 5 whose connection the broker ended got a failure code, unless it never sent a
  CONNECT or had sent a DISCONNECT itself.

At times well-behaved clients check that everything works. At the end of a round its clients are
gone and their sessions expired. Then the broker must have no session, subscription, timer, row or
byte more than before.

A failure is shrunk to the events that it needs and written to a file; `--replay FILE` repeats it.
"""

import argparse
import base64
import gc
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from dovetail import codec
from dovetail.broker.auth.access import AccessRules
from dovetail.broker.auth.session_owner import OwnershipRules
from dovetail.broker.client_link import ClientLink, LinkState
from dovetail.broker.client_wire import RemoteEnd
from dovetail.broker.core import Broker
from dovetail.codec.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Ping,
    Publish,
    SubscriptionAck,
)
from dovetail.errors import ClientError, ReasonCode
from dovetail.messages import Message
from dovetail.settings import AccessRule
from support.brokers.harness import Client, World
from support.strategies.hostile_packets import VERSIONS, HostilePackets, pick

PACKETS = 1_000_000
ROUND_PACKETS = 1_500
LINKS = 12
"""Hostile connections at once."""

PROGRESS_SECONDS = 2.0
SESSION_SECONDS_MAX = 3_600
JOINED_MAX = 60

GROWN_OBJECTS_MAX = 5_000
GROWN_BYTES_MAX = 16 << 20
"""Allowed growth between the first quarter of a long run and its end. Caches are full by then, and
a leak of one object in a hundred packets shows."""

GROWTH_PACKETS_MIN = 100_000
"""Shorter runs still fill caches, so their growth means nothing."""

_FAILURE = 0x80
_PINGRESP = Ping(PacketType.PINGRESP)
_RULES = (
    AccessRule(user="canary", publish=("canary/#",), subscribe=("canary/#",)),
    AccessRule(user="", publish=("a/#", "+/b", "s/1"), subscribe=("a/#", "+/b", "s/1", "$SYS/#")),
    AccessRule(user="u*", publish=("#", "$x/#", "%u/%c/#"), subscribe=("#", "%u/%c/#")),
    AccessRule(user="u*", deny_publish=("canary/#", "a/secret/#"), deny_subscribe=("canary/#",)),
)
_LIMITS: Final[dict[str, dict[str, Any]]] = {
    "open": {"ownership": OwnershipRules(allows_takeover=True)},
    "rules": {"rules": _RULES},
    "few": {
        "maximum_qos": 1,
        "retain_available": False,
        "alias_in_max": 0,
        "alias_out_max": 0,
        "inflight_max": 1,
        "subscriptions_max": 8,
        "sessions_max": 8,
        "connections_max": 10,
    },
    "tight": {
        "receive_max": 3,
        "inflight_max": 2,
        "queue_messages_max": 5,
        "queue_bytes_max": 2_000,
        "backlog_bytes_max": 1_024,
        "packet_bytes_max": 4_096,
        "topic_levels_max": 3,
        "topic_bytes_max": 1_000,
        "alias_in_max": 2,
        "alias_out_max": 2,
        "subscriptions_per_session_max": 4,
        "client_id_bytes_max": 23,
        "retained_messages_max": 3,
        "retained_bytes_max": 100,
        "routes_max": 4,
    },
}
_UNREAD: Final = (0.0, 0.0, 0.3, 0.6, 1.2)
"""Unread bytes of a client, as a share of the allowed backlog."""

WORLDS: Final = tuple(_LIMITS)


class BrokerViolation(Exception):  # noqa: N818
    """The broker broke a rule."""


class FuzzEvent(NamedTuple):
    """An event for the broker: see `Arena` for the kinds."""

    kind: str
    link: int = 0
    data: bytes = b""
    value: float = 0

    def to_json(self) -> list[object]:
        return [self.kind, self.link, base64.b64encode(self.data).decode(), self.value]

    @staticmethod
    def from_json(row: list[Any]) -> "FuzzEvent":
        return FuzzEvent(row[0], row[1], base64.b64decode(row[2]), row[3])

    def __str__(self) -> str:
        parts = [self.kind]
        if self.kind in {"open", "bytes", "answer", "lose", "slow"}:
            parts.append(f"link {self.link}")
        if self.data:
            shown = self.data[:400].hex(" ")
            parts.append(f"{shown} ... ({len(self.data):,} bytes)" if self.data[400:] else shown)
        if self.value:
            parts.append(f"{self.value:g}")
        return "  ".join(parts)


# One hostile connection ---------------------------------------------------------------------------


class HostileLink:
    """The client end of a link, and its wire, which checks what the broker sends."""

    def __init__(self, broker: Broker, now: float, dirty: list["HostileLink"]) -> None:
        """`dirty` gets the links with bytes to write."""
        self._dirty = dirty
        self.reader = broker.accept(self, RemoteEnd("hostile"), now)
        self.link = self.reader.link
        self.stream = bytearray()
        self.asked: Connect | None = None
        self._reads = True
        self.lost = False
        self.ended = False
        self.connected = False
        self._last: Packet | None = None
        self._aliases: set[int] = set()
        self._unsent = 0
        self._resumed = False

    def wake(self) -> None:
        self._dirty.append(self)

    def flush(self) -> None:
        """Called when the link has many bytes. They stay there until the end of the turn."""

    def resume(self) -> None:
        self.reader.take_early_bytes()

    def take(self) -> None:
        """Take the bytes to write, as the shell does, and report how many are unwritten."""
        link = self.link
        if link.outgoing:
            data = b"".join(link.outgoing)
            link.outgoing = []
            self._check_packets(data)
            self._unsent = 0 if self._reads else self._unsent + len(data)
            link.written(self._unsent)
        if link.is_closed and not self.ended and not link.outgoing:
            self.ended = True
            self._check_end()

    def read(self, unsent: int) -> None:
        """Read all but these bytes. With none left, the client keeps reading."""
        self._reads = not unsent
        self._unsent = unsent
        if not self.link.is_closed:
            self.link.written(unsent)

    def _check_packets(self, data: bytes) -> None:
        version = self.link.version
        at = 0
        size = len(data)
        while at < size:
            length = codec.decode_length(data, at + 1)
            if length is None or length[0] + length[1] > size:
                raise BrokerViolation("a client got a part of a packet")
            end = length[0] + length[1]
            packet = codec.decode(version, data[at], data[length[1] : end])
            self._check_packet(packet, end - at)
            at = end

    def _check_packet(self, packet: Packet, size: int) -> None:
        limit = self.link.packet_bytes_max
        if limit is not None and size > limit:
            raise BrokerViolation(
                f"a packet of {size} bytes for a client that takes {limit}: {packet}"
            )
        if isinstance(packet, Connack) != (self._last is None):
            raise BrokerViolation(f"{packet} comes after {self._last}")
        if isinstance(self._last, Disconnect) or (
            isinstance(self._last, Connack) and self._last.reason
        ):
            raise BrokerViolation(f"{packet} comes after the last word, {self._last}")
        self._last = packet
        if isinstance(packet, Publish):
            self._check_publish(packet)
        elif isinstance(packet, Connack):
            self.connected = packet.reason == ReasonCode.SUCCESS
            self._resumed = packet.session_present
        elif packet != _PINGRESP and not isinstance(packet, (Ack, SubscriptionAck, Disconnect)):
            raise BrokerViolation(f"a server does not send {packet}")

    def _check_publish(self, packet: Publish) -> None:
        if packet.duplicate and not self._resumed:
            raise BrokerViolation(f"a duplicate of what this session never saw: {packet}")
        if packet.alias:
            if not packet.topic and packet.alias not in self._aliases:
                raise BrokerViolation(f"alias {packet.alias} was never set")
            self._aliases.add(packet.alias)

    def _check_end(self) -> None:
        if self.lost or self.link.version == MQTT_3_1_1:
            return
        if isinstance(self._last, (Connack, Disconnect)) and self._last.reason >= _FAILURE:
            return
        if isinstance(self._last, Disconnect):
            raise BrokerViolation(f"{self._last} is no reason to end a connection")
        if not (self._said_goodbye() if self.connected else self._deserves_silence()):
            raise BrokerViolation("a connection of version 5 ended without a word")

    def _packets(self) -> Iterator[tuple[int, bytes]]:
        """Yield the whole packets among the bytes that the client sent."""
        stream = bytes(self.stream)
        at = 0
        while at + 1 < len(stream):
            try:
                length = codec.decode_length(stream, at + 1)
            except ClientError:
                return
            if length is None or length[0] + length[1] > len(stream):
                return
            yield stream[at], stream[length[1] : length[0] + length[1]]
            at = length[0] + length[1]

    def _said_goodbye(self) -> bool:
        for first, body in self._packets():
            if first == PacketType.DISCONNECT << 4:
                return isinstance(codec.decode(MQTT_5, first, body), Disconnect)
        return False

    def _deserves_silence(self) -> bool:
        if self.asked is not None:
            return True  # it did not wait for its answer, or that did not come in time
        first, body = next(self._packets(), (0, b""))
        if first != PacketType.CONNECT << 4:
            return True
        try:
            packet = codec.decode(MQTT_5, first, body)
        except ClientError:
            return False
        # One that takes next to nothing cannot be told.
        return isinstance(packet, Connect) and (packet.packet_bytes_max or 100) < 100


# One broker ---------------------------------------------------------------------------------------


class Arena:
    """A broker with well-behaved canary clients, and its sizes before hostile clients came.

    Events: `open`, `bytes`, `lose` and `slow` (does not read) belong to a link. `answer` ends the
    authentication of a client that waits for it. `time` passes. `hold` keeps the disk busy, `fail`
    breaks it. `reload` reloads the access rules. `canary` and `crash` check that all is well.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.world = World(session_expiry_max_seconds=SESSION_SECONDS_MAX, **_LIMITS[name])
        self.links: dict[int, HostileLink] = {}
        self._by_link: dict[ClientLink, HostileLink] = {}
        self._dirty: list[HostileLink] = []
        self._defers = False
        self._canaries = 0
        broker = self.world.broker
        self._admit = broker._authenticate
        broker._authenticate = self._authenticate
        self._watcher = self.world.client("canary-watcher", user="canary")
        self._watcher.subscribe("canary/#", qos=2)
        self._publisher = self.world.client("canary-publisher", user="canary", version=MQTT_3_1_1)
        self._flush()
        self._baseline = self.sizes()
        self._actions: dict[str, Callable[[FuzzEvent], None]] = {
            "open": self._open,
            "bytes": self._bytes,
            "answer": self._answer,
            "lose": self._lose,
            "slow": self._slow,
            "time": self._time,
            "hold": self._hold,
            "fail": self._fail,
            "reload": self._reload,
            "canary": self._canary,
            "crash": self._crash,
        }

    def apply(self, event: FuzzEvent) -> None:
        """Apply an event and check the broker; raise what is wrong."""
        self._actions[event.kind](event)
        self.world.settle()
        self._flush()

    def _authenticate(self, link: ClientLink, packet: Connect) -> None:
        hostile = self._by_link.get(link)
        if hostile is None or not self._defers:
            self._admit(link, packet)
        else:
            hostile.asked = packet

    def _flush(self) -> None:
        """End a turn as the shell does. Writes may allow more to be sent."""
        while self._dirty:
            self._dirty.pop(0).take()

    # Events -------------------------------------------------------------------------------------

    def _open(self, event: FuzzEvent) -> None:
        before = self.links.get(event.link)
        if before is not None:
            if not before.link.is_closed:
                self._lose(event)
                self._flush()
            del self._by_link[before.link]
        hostile = HostileLink(self.world.broker, self.world.now, self._dirty)
        self.links[event.link] = self._by_link[hostile.link] = hostile

    def _bytes(self, event: FuzzEvent) -> None:
        hostile = self.links.get(event.link)
        if hostile is None or not event.data:
            return
        link = hostile.link
        self._defers = event.value > 0
        was_closed = link.is_closed
        hostile.stream += event.data
        if not hostile.reader.receive_plain(event.data):
            hostile.reader.receive(event.data, self.world.now)
        if was_closed and (not link.is_closed or link.outgoing):
            raise BrokerViolation("a closed link came back to life")
        if (link.state is LinkState.CONNECTED) != (link.session is not None):
            raise BrokerViolation(f"a link that is {link.state} with the session {link.session}")

    def _answer(self, event: FuzzEvent) -> None:
        hostile = self.links.get(event.link)
        if hostile is None or hostile.asked is None or hostile.link.is_closed:
            return
        packet, hostile.asked = hostile.asked, None
        if event.value:
            self._admit(hostile.link, packet)
        else:
            hostile.link.refuse(ReasonCode.NOT_AUTHORIZED, None)
        hostile.resume()

    def _lose(self, event: FuzzEvent) -> None:
        hostile = self.links.get(event.link)
        if hostile is not None and not hostile.link.is_closed:
            hostile.lost = True
            hostile.link.lost(self.world.now)

    def _slow(self, event: FuzzEvent) -> None:
        hostile = self.links.get(event.link)
        if hostile is None:
            return
        hostile.read(int(event.value * self.world.shared.limits.backlog_bytes_max))

    def _time(self, event: FuzzEvent) -> None:
        self.world.pass_time(event.value)

    def _hold(self, event: FuzzEvent) -> None:
        self.world.auto_commit = not event.value

    def _fail(self, event: FuzzEvent) -> None:
        self.world.disk_works = not event.value

    def _reload(self, _event: FuzzEvent) -> None:
        self.world.broker.change_rules(AccessRules(_LIMITS[self.name].get("rules", ())))

    def _canary(self, _event: FuzzEvent) -> None:
        """Send a message at each QoS in turn; without a disk only QoS 0 works."""
        world = self.world
        self._canaries += 1
        payload = b"canary %d" % self._canaries
        sound = world.auto_commit and world.disk_works and not world.shared.journal.failing
        qos = self._canaries % (world.shared.limits.maximum_qos + 1) if sound else 0
        packet_id = self._publisher.publish("canary/health", payload, qos)
        if qos == 2:
            self._publisher.send(Ack(PacketType.PUBREL, packet_id))
        answers = [packet.type for packet in self._publisher.take() if isinstance(packet, Ack)]
        expected = [[], [PacketType.PUBACK], [PacketType.PUBREC, PacketType.PUBCOMP]][qos]
        if answers != expected:
            raise BrokerViolation(f"the canary published with QoS {qos} and got {answers}")
        payloads = self._watched()
        if payload not in payloads:
            raise BrokerViolation(f"the canary published {payload!r} and got {payloads}")
        if self.name == "rules" and payloads != [payload]:
            raise BrokerViolation(f"somebody who may not published to the canary: {payloads}")
        self._visit()

    def _watched(self) -> list[bytes]:
        """Return the payloads that reached the watcher, which acknowledges them."""
        payloads = []
        for packet in self._watcher.take():
            if isinstance(packet, Publish):
                payloads.append(packet.payload)
                if packet.qos == 1:
                    self._watcher.send(Ack(PacketType.PUBACK, packet.packet_id))
                elif packet.qos == 2:
                    self._watcher.send(Ack(PacketType.PUBREC, packet.packet_id))
                    self._watcher.send(Ack(PacketType.PUBCOMP, packet.packet_id))
        self._watcher.take()
        return payloads

    def _visit(self) -> None:
        """Let a well-behaved client connect and disconnect."""
        world = self.world
        visitor = Client(world, "canary-visitor", user="canary")
        reason = visitor.connect().reason
        full = {ReasonCode.SERVER_BUSY, ReasonCode.QUOTA_EXCEEDED} if self.name == "few" else set()
        if not reason:
            visitor.disconnect()
        elif reason not in full:
            raise BrokerViolation(f"a good client was refused: {visitor.connack}")

    def _crash(self, _event: FuzzEvent) -> None:
        """Check that another broker recovers this one's state from disk."""
        world = self.world
        tables = {name: dict(table) for name, table in world.disk.tables.items()}
        # As the store does when it is opened.
        sessions, messages = tables["sessions"], tables["messages"]
        for name in ("subscriptions", "deliveries", "run_deliveries", "incoming"):
            tables[name] = {key: row for key, row in tables[name].items() if key[0] in sessions}
        tables["deliveries"] = {
            key: row for key, row in tables["deliveries"].items() if row.message in messages
        }
        disk = type(world.disk)()
        disk.tables = tables
        other = World(disk, now=world.now, **_LIMITS[self.name])
        other.pass_time(1)

    # The end of a round -------------------------------------------------------------------------

    def clear(self) -> None:
        """Remove all hostile clients, wait, and check that nothing of them is left."""
        for number in list(self.links):
            self.apply(FuzzEvent("lose", number))
        self.apply(FuzzEvent("hold"))
        self.apply(FuzzEvent("fail"))
        self.apply(FuzzEvent("time", value=2.0 * SESSION_SECONDS_MAX))
        broker = self.world.broker
        for message in list(broker.retained):
            broker.publish(Message(message.topic, b"", retain=True))
        self.apply(FuzzEvent("canary"))
        for hostile in self.links.values():
            if not hostile.ended:
                raise BrokerViolation("a link was closed and the shell was not told")
        self.links.clear()
        self._by_link.clear()
        self._check_bounds()
        sizes = self.sizes()
        if sizes != self._baseline:
            grown = {
                name: (self._baseline[name], size)
                for name, size in sizes.items()
                if size != self._baseline[name]
            }
            raise BrokerViolation(f"a round left something behind (before, after): {grown}")

    def sizes(self) -> dict[str, object]:
        broker = self.world.broker
        shared = self.world.shared
        journal = shared.journal
        return {
            "sessions": sorted(broker.sessions),
            "links": len(broker.links),
            "dirty": len(self._dirty),
            "retained deliveries": len(broker.retained_deliveries._waiting),
            "timers": len(broker.timers),
            "subscriptions": broker.router.count,
            "filters": len(broker.router._trie),
            "retained": (len(broker.retained), broker.retained.nbytes),
            "retained tree": len(broker.retained._root),
            "clients_connected": shared.gauges.clients_connected,
            "queued_messages": shared.gauges.queued_messages,
            "queued_bytes": shared.gauges.queued_bytes,
            "rows that wait": not journal.open.is_empty,
            "who waits": len(journal._waiting_again) + len(journal.open.waiting),
            "on its way": journal.outstanding is not None,
            **{f"{name} on disk": len(rows) for name, rows in self.world.disk.tables.items()},
        }

    def _check_bounds(self) -> None:
        broker = self.world.broker
        router = broker.router
        bounds = {
            "entries in the heap of timers": (
                len(broker.timers._heap),
                2 * len(broker.timers) + 1_100,
            ),
            "routes": (
                len(router.cache),
                max(self.world.shared.limits.routes_max, 2),
            ),
            "sets of filters": (
                router.cache.shared,
                self.world.shared.limits.routes_max,
            ),
        }
        for name, (count, limit) in bounds.items():
            if count > limit:
                raise BrokerViolation(f"{count:,} {name}, at most {limit:,} expected")


# A round ------------------------------------------------------------------------------------------


class FuzzFailure(Exception):  # noqa: N818
    """An error, and the events that led to it."""

    def __init__(self, world: str, events: list[FuzzEvent], error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.world = world
        self.events = events
        self.error = error


class FuzzRound:
    """Draws events for an arena, and applies them."""

    def __init__(self, arena: Arena, random: Random, packets: HostilePackets) -> None:
        self._arena = arena
        self._random = random
        self._packets = packets
        # In a simple round all speak one version, and leave no session behind.
        self._prefix = "simple " if random.random() < 0.3 else ""
        self._spoken = (pick(random, VERSIONS),) if self._prefix else VERSIONS
        self._versions = [MQTT_5] * LINKS
        self.events: list[FuzzEvent] = []
        self.sent = 0

    def run(self, packets: int) -> int:
        """Run the round. Return how many packets were sent."""
        try:
            while self.sent < packets:
                self._step()
            self._arena.clear()
        except Exception as error:
            raise FuzzFailure(self._arena.name, self.events, error) from error
        return self.sent

    def _do(self, kind: str, link: int = 0, data: bytes = b"", value: float = 0) -> None:
        event = FuzzEvent(kind, link, data, value)
        self.events.append(event)
        self._arena.apply(event)

    def _step(self) -> None:
        random = self._random
        number = int(random.random() * LINKS)
        hostile = self._arena.links.get(number)
        chance = random.random()
        if hostile is None or (hostile.link.is_closed and chance < 0.8):
            self._come(number)
        elif chance < 0.94:
            self._send(number)
        elif hostile.asked is not None:
            self._do("answer", number, value=float(random.random() < 0.8))
        else:
            self._happen(number)

    def _come(self, number: int) -> None:
        """Open a connection, which mostly begins with a valid CONNECT."""
        random = self._random
        self._do("open", number)
        version = self._versions[number] = pick(random, self._spoken)
        if random.random() < 0.2 and not self._prefix:
            self._do("slow", number, value=pick(random, _UNREAD))
        if random.random() < 0.85:
            data = self._packets.valid(version, f"{self._prefix}connect")
            while random.random() < 0.5:
                kind = pick(random, (f"{self._prefix}subscribe", "publish"))
                data += self._packets.valid(version, kind)
                self.sent += 1
            self.sent += 1
            self._feed(number, data)

    def _send(self, number: int) -> None:
        random = self._random
        version = self._versions[number] if random.random() < 0.98 else pick(random, VERSIONS)
        data = self._packets.packet(version)
        self.sent += 1
        if random.random() < 0.03:
            # Enough of them are scanned at once; many are alike, as they are in a burst.
            joined = [data]
            for _ in range(int(random.random() * JOINED_MAX)):
                if random.random() < 0.6:
                    kind = pick(random, ("plain", "plain", "publish"))
                    data = self._packets.valid(version, kind)
                joined.append(data)
            self.sent += len(joined) - 1
            data = b"".join(joined)
        self._feed(number, data)

    def _feed(self, number: int, data: bytes) -> None:
        """Deliver bytes whole, or in pieces as a network may cut them."""
        random = self._random
        defers = float(random.random() < 0.2)
        if random.random() < 0.8:
            self._do("bytes", number, data, defers)
            return
        at = 0
        while at < len(data):
            end = at + 1 + int(random.random() ** 2 * len(data))
            self._do("bytes", number, data[at:end], defers)
            at = end

    def _happen(self, number: int) -> None:
        random = self._random
        chance = random.random()
        if chance < 0.35:
            self._do("lose", number)
        elif chance < 0.6:
            self._do("slow", number, value=pick(random, _UNREAD))
        elif chance < 0.8:
            self._do("time", value=pick(random, (0.01, 0.5, 1.0, 20.0, 200.0)))
        elif chance < 0.9:
            self._do("hold", value=float(random.random() < 0.4))
        elif chance < 0.94:
            self._do("fail", value=float(random.random() < 0.4))
        elif chance < 0.98:
            self._do("canary")
        elif chance < 0.99:
            self._do("reload")
        else:
            self._do("crash")


def run_round(seed: int, number: int, packets: int, arena: Arena, hostile: HostilePackets) -> int:
    """Run one round, which seed and number determine."""
    random = Random(f"{seed}/{number}")
    hostile.random = random
    return FuzzRound(arena, random, hostile).run(packets)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the broker's log, which would have a line for nearly every packet."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


# Failures -----------------------------------------------------------------------------------------


def fails(world: str, events: list[FuzzEvent]) -> BaseException | None:
    """Apply the events to a new broker. Return the error, if any."""
    try:
        arena = Arena(world)
        for event in events:
            arena.apply(event)
        arena.clear()
    except Exception as error:  # noqa: BLE001
        return error
    return None


def shrink(failure: FuzzFailure, seconds_max: float = 20.0) -> FuzzFailure:
    """Return fewer events that fail in the same way, or else the failure itself."""
    events = failure.events
    first = fails(failure.world, events)
    if first is None:
        return failure
    kind = _kind_of(first)
    deadline = time.monotonic() + seconds_max
    error = first
    size = len(events) // 2
    while size and time.monotonic() < deadline:
        at = 0
        while at < len(events) and time.monotonic() < deadline:
            fewer = events[:at] + events[at + size :]
            found = fails(failure.world, fewer)
            if found is not None and _kind_of(found) == kind:
                events, error = fewer, found
            else:
                at += size
        size //= 2
    return FuzzFailure(failure.world, events, error)


def _kind_of(error: BaseException) -> tuple[object, ...]:
    frames = traceback.extract_tb(error.__traceback__)
    return type(error), frames[-1].name, frames[-1].lineno


def write_failure(failure: FuzzFailure, seed: int, number: int) -> Path:
    path = Path(tempfile.gettempdir()) / f"dovetail-fuzz-{seed}-{number}.json"
    rows = [event.to_json() for event in failure.events]
    path.write_text(json.dumps({"world": failure.world, "events": rows}))
    return path


def show_failure(failure: FuzzFailure) -> None:
    for event in failure.events[-40:]:
        print(f"  {event}")
    traceback.print_exception(failure.error, file=sys.stdout, chain=False)


def replay(path: Path) -> int:
    saved = json.loads(path.read_text())
    events = [FuzzEvent.from_json(row) for row in saved["events"]]
    with quiet():
        error = fails(saved["world"], events)
    if error is None:
        print(f"{len(events)} events, and nothing is wrong any more")
        return 0
    show_failure(FuzzFailure(saved["world"], events, error))
    return 1


# A run --------------------------------------------------------------------------------------------


class ResourceUsage(NamedTuple):
    """Memory and objects of this process between rounds."""

    resident_bytes: int
    objects: Counter[str]

    @staticmethod
    def now() -> "ResourceUsage":
        gc.collect()
        kinds = Counter(type(one).__qualname__ for one in gc.get_objects())
        return ResourceUsage(resident_bytes(), kinds)

    def growth_to(self, later: "ResourceUsage") -> str | None:
        """Describe the growth; None if it is within the limits."""
        objects = later.objects.total() - self.objects.total()
        if objects > GROWN_OBJECTS_MAX:
            most = (later.objects - self.objects).most_common(5)
            return f"{objects:,} objects more than after a quarter: {most}"
        grown = later.resident_bytes - self.resident_bytes
        if grown > GROWN_BYTES_MAX:
            return f"{grown >> 20} MB more than after a quarter"
        return None


def resident_bytes(process: int | None = None) -> int:
    """Return the resident memory of a process, by default of this one."""
    number = os.getpid() if process is None else process
    if Path("/proc/self/status").exists():
        for line in Path(f"/proc/{number}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
        raise BrokerViolation(f"process {number} has ended")
    shown = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(number)], capture_output=True, text=True, check=True
    )
    return int(shown.stdout) << 10


def run(
    seed: int,
    packets: int = PACKETS,
    first_round: int = 0,
    *,
    show: Callable[[str], None] = lambda _line: None,
) -> int:
    """Run all rounds. Return how many packets were sent; raise `FuzzFailure`."""
    with quiet():
        hostile = HostilePackets(Random(seed))
        arenas = [Arena(name) for name in WORLDS]
        sent = 0
        number = first_round
        started = shown = time.monotonic()
        quarter: ResourceUsage | None = None
        while sent < packets:
            arena = arenas[number % len(arenas)]
            try:
                sent += run_round(seed, number, min(ROUND_PACKETS, packets - sent), arena, hostile)
            except FuzzFailure as failure:
                smaller = shrink(failure)
                path = write_failure(smaller, seed, number)
                print(f"seed {seed}, round {number}, broker {failure.world!r}: {smaller}")
                show_failure(smaller)
                print(f"Again: scripts/fuzz --replay {path}")
                raise
            number += 1
            if quarter is None and 4 * sent >= packets >= GROWTH_PACKETS_MIN:
                quarter = ResourceUsage.now()
            if time.monotonic() - shown >= PROGRESS_SECONDS:
                shown = time.monotonic()
                rate = sent / (shown - started)
                megabytes = resident_bytes() >> 20
                show(f"{sent:>9,} of {packets:,} packets, {rate:,.0f} a second, {megabytes} MB")
        grown = None if quarter is None else quarter.growth_to(ResourceUsage.now())
    if grown is not None:
        raise BrokerViolation(f"seed {seed}: {grown}")
    seconds = time.monotonic() - started
    show(f"{sent:,} packets in {seconds:.0f} s, {number - first_round:,} rounds: all is well")
    return sent


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seed", type=int, help="another one every time, and printed, without")
    parser.add_argument("--packets", type=int, help=f"{PACKETS:,}, or 20,000 with --live")
    parser.add_argument("--round", type=int, default=0, help="begin with this one")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="a failure that was found")
    parser.add_argument(
        "--live",
        nargs="?",
        const="",
        metavar="HOST:PORT",
        help="over sockets: against this broker, or one that is started for it",
    )
    options = parser.parse_args()
    if options.replay is not None:
        return replay(options.replay)
    seed = time.time_ns() % 1_000_000_000 if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)

    def show(line: str) -> None:
        print(line, flush=True)

    try:
        if options.live is not None:
            from support.processes.live_fuzzing import run_live

            run_live(seed, options.packets or 20_000, options.live, show=show)
        else:
            run(seed, options.packets or PACKETS, options.round, show=show)
    except FuzzFailure:
        return 1
    except BrokerViolation as error:
        print(f"seed {seed}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
