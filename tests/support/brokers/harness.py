"""A broker without sockets, disk or clock, and clients that exchange packets with it.

Time passes only when a test says so. Rows are on disk at once, or when a test says so.
"""

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from dovetail import codec
from dovetail.attributes.space import Space
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker.archive_queue import ArchiveQueue
from dovetail.broker.auth.access import AccessRules
from dovetail.broker.auth.session_owner import OwnershipRules
from dovetail.broker.client_link import ClientLink
from dovetail.broker.client_wire import RemoteEnd
from dovetail.broker.core import Broker
from dovetail.broker.keep_alive import TICK_SECONDS_MAX
from dovetail.broker.packet_reader import PacketReader
from dovetail.broker.peering.peer_tables import ClusterMembership
from dovetail.broker.shared_state import SharedState
from dovetail.broker.store.journal import Batch, Journal, StoredState
from dovetail.codec.packets import (
    MQTT_5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Subscribe,
    SubscriptionAck,
    SubscriptionRequest,
    Unsubscribe,
)
from dovetail.codec.properties import forwardable_properties
from dovetail.errors import ReasonCode
from dovetail.settings import AccessRule, MqttSettings

START = 1_000_000.0

PERSISTENT: dict[str, Any] = {"clean_start": False, "session_expiry_seconds": 1_000}
"""Fields of CONNECT for a session that outlives its connection. 3.1.1 has only the first one."""


class Disk:
    """The store as dicts: they survive a crash."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[Any, Any]] = {
            name: {}
            for name in (
                "sessions",
                "subscriptions",
                "messages",
                "deliveries",
                "runs",
                "run_deliveries",
                "incoming",
                "owed",
                "heard",
                "seen",
                "members",
                "removals",
                "peer_groups",
                "archive",
            )
        }

    def write(self, batch: Batch) -> None:
        for name, table in self.tables.items():
            for key, row in getattr(batch, name).items():
                if row is None:
                    table.pop(key, None)
                else:
                    table[key] = row
        for number, row in batch.sessions.items():
            if row is None:
                for name in ("subscriptions", "deliveries", "run_deliveries", "incoming"):
                    table = self.tables[name]
                    for key in [key for key in table if key[0] == number]:
                        del table[key]

    def journal(self) -> Journal:
        """Return the journal of a new process."""
        messages = (*self.tables["messages"], *self.tables["runs"])
        return Journal(max(self.tables["sessions"], default=0) + 1, max(messages, default=0) + 1)

    def state(self) -> StoredState:
        return StoredState(**{name: dict(table) for name, table in self.tables.items()})


def commit(shared: SharedState, disk: Disk, *, works: bool = True) -> bool:
    """Write the open batch to the disk, or fail to. Return False if there was nothing to write."""
    batch = shared.journal.close()
    if batch is None:
        return False
    if works:
        disk.write(batch)
    shared.journal.finished(stored=works)
    return True


class World:
    """One broker and its clients on a manual clock."""

    def __init__(
        self,
        disk: Disk | None = None,
        *,
        now: float = START,
        rules: tuple[AccessRule, ...] = (),
        spaces: Iterable[Space] = (),
        auto_commit: bool = True,
        ownership: OwnershipRules | None = None,
        **limits: object,
    ) -> None:
        self.now = now
        self.disk = disk or Disk()
        self.auto_commit = auto_commit
        self.disk_works = True
        self.works = True
        """Is long work done at once? Otherwise the test runs its pieces."""
        self.shared = SharedState(
            MqttSettings(**limits),  # type: ignore[arg-type]
            self.disk.journal(),
            ownership=ownership or OwnershipRules(),
        )
        self.broker = Broker(
            self.shared,
            authenticate=lambda link, packet: self.broker.admit(link, packet, packet.user),
            schedule=self.schedule,
            random=Random(1),
            rules=AccessRules(rules),
            spaces=SpaceRegistry(spaces),
            cluster=self.membership(),
            archive=self.make_archive(),
        )
        self.broker.restore(self.disk.state(), now)
        self.settle()

    def membership(self) -> ClusterMembership | None:
        """Return what makes the broker one of a cluster. Subclasses override this."""
        return None

    def make_archive(self) -> ArchiveQueue | None:
        """Return the broker's archive. Subclasses override this."""
        return None

    def schedule(self) -> None:
        """Called when there is something to do at the end of the turn; `settle` does it all."""

    def settle(self) -> None:
        """Let everything that can happen without time happen."""
        if self.works:
            self.work()
        if self.auto_commit:
            self.commit_all()

    def work(self) -> None:
        """Run all long work to its end."""
        self.broker.slices.run(lambda: False)

    def commit_all(self) -> None:
        while self.commit():
            if self.works:
                self.work()
            if not self.disk_works:
                return

    def commit(self) -> bool:
        return commit(self.shared, self.disk, works=self.disk_works)

    def pass_time(self, seconds: float) -> None:
        """Advance the clock, with two ticks at the end only, as if others had come before."""
        end = self.now + seconds
        for now in (max(end - TICK_SECONDS_MAX, self.now), end):
            self.now = now
            self.broker.tick(now)
            self.settle()

    def crash(self, **limits: Any) -> "World":  # noqa: ANN401
        """Return the world of a new process: it has the disk, and no connections."""
        return World(self.disk, now=self.now, **limits)

    def client(self, client_id: str = "", **fields: object) -> "Client":
        """Return a connected client. `fields` are those of CONNECT."""
        client = Client(self, client_id, **fields)
        client.connect()
        return client


class Client:
    """A client at the other end of a link, and the link's wire."""

    def __init__(self, world: World, client_id: str = "", **fields: object) -> None:
        self.world = world
        fields.setdefault("version", MQTT_5)
        self.connect_packet = Connect(client_id=client_id, **fields)  # type: ignore[arg-type]
        self.version = self.connect_packet.version
        self.link: ClientLink | None = None
        self.reader: PacketReader | None = None
        self.connack: Connack | None = None
        self.why: str | None = None
        """The reason string of the last SUBACK or UNSUBACK."""
        self._buffer = b""
        self._next_packet_id = 1

    def open(self) -> ClientLink:
        self.reader = self.world.broker.accept(self, RemoteEnd("test"), self.world.now)
        self.link = self.reader.link
        self._buffer = b""
        return self.link

    def wake(self) -> None:
        """Called when the link has bytes. `take` takes them."""

    def flush(self) -> None:
        """Called when the link has many bytes. They stay there until `take`."""

    def resume(self) -> None:
        """Called when the client was admitted."""
        assert self.reader is not None
        self.reader.take_early_bytes()

    def connect(self) -> Connack:
        self.open()
        self.send(self.connect_packet)
        first, *rest = self.take()
        assert isinstance(first, Connack), first
        self.connack = first
        self.early = rest
        return first

    def send(self, *packets: Packet) -> None:
        self.send_bytes(b"".join(codec.encode(self.version, packet) for packet in packets))

    def send_bytes(self, data: bytes) -> None:
        assert self.reader is not None
        if not self.reader.receive_plain(data):
            self.reader.receive(data, self.world.now)
        self.world.settle()

    def take(self) -> list[Packet]:
        """Return the packets that came since the last call."""
        assert self.link is not None
        data = self._buffer + b"".join(self.link.outgoing)
        self._buffer = b""
        self.link.outgoing = []
        self.link.written(0)
        packets: list[Packet] = []
        at = 0
        while at < len(data):
            length = codec.decode_length(data, at + 1)
            assert length is not None
            body, end = length[1], length[1] + length[0]
            assert end <= len(data)
            packets.append(codec.decode(self.version, data[at], data[body:end]))
            at = end
        return packets

    def take_one(self) -> Packet:
        (packet,) = self.take()
        return packet

    def messages(self) -> list[Publish]:
        """Return the packets that came since the last call, all of which are publications."""
        packets = self.take()
        assert all(isinstance(packet, Publish) for packet in packets), packets
        return packets  # type: ignore[return-value]

    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages()]

    @property
    def is_closed(self) -> bool:
        return self.link is None or self.link.is_closed

    def assert_ended(self, reason: int) -> None:
        """Assert that the broker closed the connection, with a DISCONNECT in version 5 only."""
        assert self.is_closed
        last = [packet.reason for packet in self.take() if isinstance(packet, Disconnect)]
        assert last == ([reason] if self.version == MQTT_5 else [])

    def new_packet_id(self) -> int:
        self._next_packet_id += 1
        return self._next_packet_id

    def subscribe(
        self, *filters: str, identifier: int = 0, where: str | None = None, **options: object
    ) -> list[int]:
        """Subscribe, and return the reason codes. SUBACK has to come before any message."""
        packet_id = self.new_packet_id()
        requests = [SubscriptionRequest(name, **options) for name in filters]  # type: ignore[arg-type]
        self.send(Subscribe(packet_id, requests, identifier, _where(where)))
        return self._reasons(packet_id)

    def unsubscribe(self, *filters: str, where: str | None = None) -> list[int]:
        packet_id = self.new_packet_id()
        self.send(Unsubscribe(packet_id, list(filters), _where(where)))
        return self._reasons(packet_id)

    def _reasons(self, packet_id: int) -> list[int]:
        assert self.link is not None
        answer, *rest = self.take()
        assert isinstance(answer, SubscriptionAck), answer
        assert answer.packet_id == packet_id
        self.why = answer.reason_string
        # Later packets stay in the buffer.
        self._buffer = b"".join(codec.encode(self.version, packet) for packet in rest)
        return answer.reasons

    def publish(self, topic: str, payload: bytes = b"", qos: int = 0, **fields: object) -> int:
        """Publish, and return the packet identifier."""
        packet_id = self.new_packet_id() if qos else 0
        self.send(
            Publish(topic.encode(), payload, qos, packet_id=packet_id, **fields)  # type: ignore[arg-type]
        )
        return packet_id

    def disconnect(self, reason: int = ReasonCode.SUCCESS, **fields: object) -> None:
        self.send(Disconnect(reason, **fields))  # type: ignore[arg-type]
        assert self.is_closed

    def lose(self) -> None:
        """Lose the connection, as if the network broke."""
        assert self.link is not None
        self.link.lost(self.world.now)
        self.world.settle()


def attributes(**values: object) -> bytes:
    """Return attributes as the properties of a PUBLISH."""
    return with_attributes({name: str(value) for name, value in values.items()})


def with_attributes(values: Mapping[str, str]) -> bytes:
    return forwardable_properties(user=tuple(values.items()))


def _where(clause: str | None) -> tuple[tuple[str, str], ...]:
    return () if clause is None else (("where", clause),)
