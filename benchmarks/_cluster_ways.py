"""Three interchangeable ways for brokers to know where a publication is needed.

sketches  the product's own exchange
exact     every filter's text goes to every peer, which has a trie of them (as with EMQX's routes)
flooding  brokers know nothing of others, and everything goes to all (as with `topic #` bridges)

The other two are the product's exchange with other contents: connections, versions, deltas and
waiting are the same. All of them count the bytes that they receive.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import msgspec

from dovetail.broker.peering.peer_messages import (
    DELTA,
    LOST,
    MORE,
    WHOLE,
    SketchPart,
    decoded,
    encode,
    sketch_part_decoder,
)
from dovetail.broker.peering.sketch_exchange import SketchExchange
from dovetail.cluster.frames import HEADER_BYTES
from dovetail.errors import SketchError
from dovetail.topics.trie import FilterTrie

_STATE = struct.Struct("<QQ")
_LENGTH = struct.Struct("<H")
_LOG_MAX = 65_536
_PART_BYTES = 262_144


class CountingExchange(SketchExchange):
    """Counts bytes from peers.

    Of whole copies only the last one counts: on a busy machine a connection may be given up while a
    whole is sent, which then begins again.
    """

    def __init__(self, **options: Any) -> None:  # noqa: ANN401
        super().__init__(**options)
        self._wholes: dict[str, int] = {}
        self.delta_bytes = 0

    @property
    def whole_bytes(self) -> int:
        return sum(self._wholes.values())

    def receive(self, name: str, kind: int, body: bytes) -> tuple[int, bytes]:
        size = HEADER_BYTES + len(body)
        if kind == WHOLE:
            begun = self._wholes.get(name, 0) if decoded(sketch_part_decoder, body).place else 0
            self._wholes[name] = begun + size
        else:
            self.delta_bytes += size
        return super().receive(name, kind, body)


class SketchTables(CountingExchange):
    @property
    def known_bytes(self) -> int:
        """Return the bytes of what this broker knows of others."""
        return self.bank.nbytes

    @property
    def own_bytes(self) -> int:
        """Return the bytes of its own sketch: bits and counts."""
        return int(self.sketch.words.nbytes) + self.sketch.counting_bytes


class _Filters:
    """One broker's filters, and their last changes."""

    def __init__(self, lineage: int) -> None:
        self.lineage = lineage
        self.version = 0
        self.texts: dict[str, None] = {}
        self.log: list[tuple[str, bool]] = []
        """The last changes; each is a version."""

    def change(self, text: str, is_there: bool) -> None:
        if is_there:
            self.texts[text] = None
        else:
            del self.texts[text]
        self.version += 1
        self.log.append((text, is_there))
        if len(self.log) > _LOG_MAX:
            del self.log[: _LOG_MAX // 2]


class _Change(msgspec.Struct, array_like=True):
    lineage: int
    version: int
    back: int
    changes: list[tuple[str, bool]]


class _Tries:
    """A trie for each peer."""

    def __init__(self) -> None:
        self.tries: dict[str, FilterTrie[bool]] = {}
        self.states: dict[str, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self.tries)

    def __contains__(self, name: object) -> bool:
        return name in self.tries

    def state_of(self, name: str) -> tuple[int, int]:
        return self.states[name]

    def remove(self, name: str) -> None:
        del self.tries[name], self.states[name]


class _IncomingTrie:
    """Builds a trie in parts: a million filters at once would block the loop for too long."""

    def __init__(self) -> None:
        self.trie: FilterTrie[bool] = FilterTrie()
        self.state: tuple[int, int] | None = None
        self.bytes = 0
        self._rest = b""

    def take(self, data: bytes) -> None:
        self.bytes += len(data)
        data = self._rest + data
        at = 0
        if self.state is None:
            self.state = _STATE.unpack_from(data)
            at = _STATE.size
        while len(data) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(data, at)
            end = at + _LENGTH.size + size
            if end > len(data):
                break
            self.trie[data[at + _LENGTH.size : end]] = True
            at = end
        self._rest = data[at:]


class ExactTables(CountingExchange):
    def __init__(self, **options: Any) -> None:  # noqa: ANN401
        super().__init__(**options)
        self._filters = _Filters(options["lineage"])
        self._known = _Tries()
        self.bank: Any = self._known
        self._parts: dict[str, _IncomingTrie] = {}

    @property
    def sketch(self) -> Any:  # noqa: ANN401
        return self._filters

    @property
    def known_bytes(self) -> int:
        """Return the bytes of the tries' arrays, without their lists of values."""
        return sum(trie.nbytes for trie in self._known.tries.values())

    own_bytes = 0

    def add(self, topic_filter: str) -> None:
        self._filters.change(topic_filter, True)

    def discard(self, topic_filter: str) -> None:
        self._filters.change(topic_filter, False)

    @staticmethod
    def _delta(sketch: Any, known: int) -> bytes:  # noqa: ANN401
        back = sketch.version - known
        if known < 0 or back > len(sketch.log):
            return b""
        changes = sketch.log[len(sketch.log) - back :]
        return encode(_Change(sketch.lineage, sketch.version, back, changes))

    def flush(self) -> None:
        filters = self._filters
        whole = cache(lambda: whole_text(filters.lineage, filters.version, filters.texts))

        def send(name: str, version: int) -> bool:
            delta = self._delta(filters, version)
            if delta:
                return self._send(name, DELTA, delta)
            self._outgoing_parts[name] = whole()
            return self._send_part(name, 0)

        self._replicas.send(filters.version, send)

    def _send_part(self, name: str, place: int) -> bool:
        whole = self._outgoing_parts[name]
        part = SketchPart(place, len(whole), whole[place : place + _PART_BYTES])
        return self._send(name, WHOLE, encode(part))

    def _assemble(self, name: str, part: SketchPart) -> bytes | tuple[int, bytes]:
        if not part.place:
            self._parts[name] = _IncomingTrie()
        arriving = self._parts.get(name)
        if arriving is None or arriving.bytes != part.place:
            return LOST, b""
        arriving.take(part.data)
        return b"" if arriving.bytes == part.bytes_in_all else (MORE, encode(arriving.bytes))

    def _take_whole(self, name: str, _whole: bytes) -> None:
        arrived = self._parts.pop(name)
        assert arrived.state is not None
        self._known.tries[name] = arrived.trie
        self._known.states[name] = arrived.state

    def _take_delta(self, name: str, body: bytes) -> None:
        change = msgspec.msgpack.decode(body, type=_Change)
        lineage, version = self._known.states.get(name, (0, 0))
        if lineage != change.lineage or version < change.version - change.back:
            raise SketchError("it does not continue what is known")
        trie = self._known.tries[name]
        for text, is_there in change.changes[len(change.changes) - change.version + version :]:
            if is_there:
                trie[text] = True
            else:
                del trie[text]
        self._known.states[name] = (lineage, change.version)

    def search(self, topics: Sequence[bytes]) -> list[tuple[str, ...]]:
        matched = {name: trie.match_many(topics) for name, trie in self._known.tries.items()}
        return [
            (*(name for name, found in matched.items() if found[i]), *self._unknown)
            for i in range(len(topics))
        ]

    def search_peer(self, name: str, topics: Sequence[bytes]) -> list[bool]:
        return [bool(found) for found in self._known.tries[name].match_many(topics)]


class Flooding(CountingExchange):
    """Brokers never learn about each other, so every peer may need everything."""

    known_bytes = 0
    own_bytes = 0
    is_synchronous = True

    def filter_changed(self, _topic_filter: str, _is_there: bool) -> None:
        """Do nothing: peers are not informed."""

    def flush(self) -> None:
        """Do nothing: there are no changes to send."""

    def when_known(self, _deadline: float, act: Callable[[], None]) -> None:
        act()


WAYS: dict[str, type[CountingExchange]] = {
    "flooding": Flooding,
    "exact": ExactTables,
    "sketches": SketchTables,
}


def whole_text(lineage: int, version: int, texts: Iterable[str]) -> bytes:
    parts = [_STATE.pack(lineage, version)]
    for text in texts:
        data = text.encode()
        parts += (_LENGTH.pack(len(data)), data)
    return b"".join(parts)


def deflated_bytes(texts: Iterable[str]) -> int:
    """Return the bytes of the texts when deflated, for comparison."""
    return len(zlib.compress(whole_text(0, 0, texts), 6))
