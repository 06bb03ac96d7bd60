"""What a node knows of all nodes, itself among them: versioned records. Pure.

Rules:

- A node writes its own records only, and each write takes the next version of its one counter. So
  (node, incarnation, version) identifies the content in all tables.
- A higher incarnation of a node replaces a lower one as a whole. Within an incarnation, the higher
  version of a key wins. Merging is commutative, associative and idempotent.
- A heartbeat is a version without content.
- A delta has the records after a version, in order, and may be cut anywhere. A table accepts it
  only if it has all earlier ones. So it knows a node's history up to a version, without holes.
- Values are opaque bytes.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated

from msgspec import Meta, Struct

from dovetail.cluster.limits import NODE_RECORDS_MAX, RECORD_BYTES_MAX, RECORD_KEY_BYTES_MAX
from dovetail.limits import CLUSTER_NODES_MAX, NODE_NAME_BYTES_MAX

Name = Annotated[str, Meta(min_length=1, max_length=NODE_NAME_BYTES_MAX)]
Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]

_RECORD_OVERHEAD_BYTES = 16
_DELTA_OVERHEAD_BYTES = 40


class Record(Struct, frozen=True, array_like=True):
    """A key and value that a node publishes about itself."""

    key: Annotated[str, Meta(max_length=RECORD_KEY_BYTES_MAX)]
    version: Number
    value: Annotated[bytes, Meta(max_length=RECORD_BYTES_MAX)]


class Digest(Struct, frozen=True, array_like=True):
    """How much of a node's history a table has."""

    name: Name
    incarnation: Number
    version: Number


class Delta(Struct, frozen=True, array_like=True):
    """A part of a node's history: the records after `since`, up to `version`."""

    name: Name
    incarnation: Number
    since: Number
    version: Number
    records: Annotated[tuple[Record, ...], Meta(max_length=NODE_RECORDS_MAX)]


class NodeState:
    """What is known of one node."""

    __slots__ = ("incarnation", "records", "version")

    def __init__(self, incarnation: int, version: int = 0) -> None:
        self.incarnation = incarnation
        self.version = version
        self.records: dict[str, Record] = {}

    def value(self, key: str) -> bytes | None:
        record = self.records.get(key)
        return None if record is None else record.value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, NodeState)
            and self.incarnation == other.incarnation
            and self.version == other.version
            and self.records == other.records
        )

    __hash__ = None  # type: ignore[assignment]


class MembershipChange(Struct, frozen=True):
    """What a delta has changed."""

    name: str
    is_new: bool
    """The node or its incarnation was not known."""
    keys: tuple[str, ...]


class MembershipTable:
    """All nodes and their records, as one node knows them."""

    def __init__(self, name: str, incarnation: int) -> None:
        self.name = name
        self.nodes: dict[str, NodeState] = {name: NodeState(incarnation)}

    @property
    def own(self) -> NodeState:
        return self.nodes[self.name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.nodes)

    # Our own history ------------------------------------------------------------------------------

    def beat(self) -> None:
        self.own.version += 1

    def put(self, key: str, value: bytes) -> None:
        """Publish a value. An unchanged value is not published again."""
        own = self.own
        if own.value(key) == value:
            return
        if len(value) > RECORD_BYTES_MAX:
            raise ValueError(f"a record of {len(value):,} bytes; at most {RECORD_BYTES_MAX:,} fit")
        if key not in own.records and len(own.records) >= NODE_RECORDS_MAX:
            raise ValueError(f"more than {NODE_RECORDS_MAX} records of one node")
        own.version += 1
        own.records.pop(key, None)  # records stay in the order of their versions
        own.records[key] = Record(key, own.version, value)

    def outlive(self, incarnation: int) -> None:
        """Become later than `incarnation`, which others know: our clock or disk went back."""
        own = self.own
        renewed = NodeState(incarnation + 1, own.version)
        renewed.records = own.records
        self.nodes[self.name] = renewed

    # Exchange -------------------------------------------------------------------------------------

    def digests(self) -> list[Digest]:
        return [
            Digest(name, state.incarnation, state.version) for name, state in self.nodes.items()
        ]

    def compare(self, theirs: Iterable[Digest]) -> tuple[list[Digest], list[Digest]]:
        """Return digests: what they lack, as they have it, and what we lack, as we have it.

        If one side has never heard of a node, its digest is all zeros but for the name.
        """
        they_lack: list[Digest] = []
        we_lack: list[Digest] = []
        known = {digest.name: digest for digest in theirs}
        for name, state in self.nodes.items():
            digest = known.get(name)
            if digest is None:
                they_lack.append(Digest(name, 0, 0))
            elif (digest.incarnation, digest.version) < (state.incarnation, state.version):
                they_lack.append(digest)
            elif (digest.incarnation, digest.version) > (state.incarnation, state.version):
                we_lack.append(Digest(name, state.incarnation, state.version))
        we_lack += [Digest(name, 0, 0) for name in known if name not in self.nodes]
        return they_lack, we_lack

    def deltas(self, lacking: Iterable[Digest], bytes_max: int) -> list[Delta]:
        """Return deltas for a table with these digests, as many as fit."""
        found = []
        room = bytes_max
        for digest in lacking:
            state = self.nodes.get(digest.name)
            if state is None:
                continue
            since = digest.version if digest.incarnation == state.incarnation else 0
            if digest.incarnation > state.incarnation or since > state.version:
                continue
            room -= _DELTA_OVERHEAD_BYTES + len(digest.name)
            if room < 0:
                break
            records, is_whole = _after(state.records, since, room)
            room -= sum(map(_record_bytes, records))
            version = state.version if is_whole else (records[-1].version if records else since)
            if is_whole or records:
                found.append(Delta(digest.name, state.incarnation, since, version, tuple(records)))
        return found

    def apply(self, delta: Delta) -> MembershipChange | None:
        """Apply a delta. Return None if it has nothing new, or does not follow our history."""
        if delta.name == self.name:
            if delta.incarnation > self.own.incarnation or (
                delta.incarnation == self.own.incarnation and delta.version > self.own.version
            ):
                self.outlive(delta.incarnation)
            return None
        state = self.nodes.get(delta.name)
        is_new = state is None or delta.incarnation > state.incarnation
        if is_new:
            if delta.since or (state is None and len(self.nodes) >= CLUSTER_NODES_MAX):
                return None
            state = NodeState(delta.incarnation)
        assert state is not None
        if (
            delta.incarnation < state.incarnation
            or delta.since > state.version
            or (delta.version <= state.version and not is_new)
        ):
            return None
        news = [record for record in delta.records if record.version > state.version]
        if len(state.records.keys() | {record.key for record in news}) > NODE_RECORDS_MAX:
            return None
        for record in news:
            state.records.pop(record.key, None)
            state.records[record.key] = record
        state.version = delta.version
        self.nodes[delta.name] = state
        return MembershipChange(delta.name, is_new, tuple(record.key for record in news))

    def introduce(self, name: str, incarnation: int) -> bool:
        """Add a node that has connected, without its records. False: it is known already."""
        known = self.nodes.get(name)
        if known is not None and known.incarnation >= incarnation:
            return False
        if known is None and len(self.nodes) >= CLUSTER_NODES_MAX:
            return False
        self.nodes[name] = NodeState(incarnation)
        return True

    def forget(self, name: str) -> None:
        assert name != self.name
        self.nodes.pop(name, None)


def _after(records: dict[str, Record], since: int, bytes_max: int) -> tuple[list[Record], bool]:
    """Return the records after a version, oldest first, as many as fit, and whether all do."""
    found: list[Record] = []
    newest_first = []
    for record in reversed(records.values()):
        if record.version <= since:
            break
        newest_first.append(record)
    for record in reversed(newest_first):
        bytes_max -= _record_bytes(record)
        if bytes_max < 0:
            return found, False
        found.append(record)
    return found, True


def _record_bytes(record: Record) -> int:
    return _RECORD_OVERHEAD_BYTES + len(record.key) + len(record.value)
