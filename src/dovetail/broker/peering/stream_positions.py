"""How far the publications of each peer were taken: a number is taken once. Pure.

Rules:

- A stream is one data folder's, through all lives of its broker; its numbers rise (outbox.py).
- Deliveries to kept sessions, what is passed on, and the number are written in one batch, and the
  peer hears of it when they are on disk: what it has heard of it does not send again.
- How far a stream was taken stays when its broker is forgotten: it may come back after all, with
  what it owed us. Streams of brokers that are gone are kept up to a bound.
"""

from collections.abc import Callable

from dovetail.broker.peering.limits import HEARD_STREAMS_MAX, PEER_FRAME_EXTRA_BYTES
from dovetail.broker.peering.peer_messages import (
    HEARD,
    CopiedFolderError,
    Heard,
    Publication,
    encode,
)
from dovetail.broker.peering.peers import Peer, Peers
from dovetail.broker.shared_state import Shared
from dovetail.cluster.limits import PEER_FRAME_BYTES_MAX
from dovetail.errors import PeerError

Answer = Callable[[int, bytes], object]
"""A frame back over the connection that a question came by."""


class Streams:
    """Of all brokers but this one."""

    def __init__(
        self,
        own: int,
        shared: Shared,
        peers: Peers,
        *,
        is_live: Callable[[str], bool],
        take: Callable[[str, Publication], None],
    ) -> None:
        """`own` is our stream; `take` gets what is new, by the peer's name."""
        self._own = own
        self._shared = shared
        self._peers = peers
        self._is_live = is_live
        self._take = take
        self._heard: dict[int, int] = {}
        self._takes_bytes_max = max(
            PEER_FRAME_BYTES_MAX - PEER_FRAME_EXTRA_BYTES, shared.limits.packet_bytes_max
        )

    def restore(self, heard: dict[int, int]) -> None:
        self._heard.update(heard)

    def begin(self, name: str, stream: int) -> None:
        """What a peer sends from now on is of this stream.

        Who numbers as another does would have its publications taken for that one's.
        """
        peer = self._peers.know(name)
        for other, known in self._peers.known.items():
            if known.stream == stream and other != name and self._is_live(other):
                raise CopiedFolderError(f"the data folder of {name} is a copy of that of {other}")
        if stream == self._own:
            raise CopiedFolderError(f"the data folder of {name} is a copy of ours, or ours of it")
        peer.stream = stream

    def say(self, name: str, answer: Answer) -> None:
        """How far the peer's stream was taken, and how much we take in one piece."""
        self._forget_some()
        peer = self._peers.know(name)
        heard = Heard(self._heard.get(peer.stream, 0), self._takes_bytes_max)
        self._confirm(peer, heard, answer)

    def take(self, name: str, publication: Publication, answer: Answer) -> None:
        journal = self._shared.journal
        peer = self._peers.know(name)
        sequence = publication.sequence
        if sequence and not peer.stream:
            raise PeerError("a numbered publication before its stream was named")
        if sequence and sequence <= self._heard.get(peer.stream, 0):
            self._confirm(peer, Heard(sequence), answer)
            return
        rows_before = journal.rows_written
        self._take(name, publication)
        if not sequence:
            return
        self._heard[peer.stream] = sequence
        has_rows = journal.rows_written != rows_before
        if has_rows:
            journal.save_heard(peer.stream, sequence)
        self._confirm(peer, Heard(sequence), answer, wait=has_rows)

    def _forget_some(self) -> None:
        """Those that began longest ago, of brokers that are not known any more."""
        if len(self._heard) <= HEARD_STREAMS_MAX:
            return
        known = {peer.stream for peer in self._peers.known.values()}
        old = sorted(self._heard.keys() - known, key=self._heard.__getitem__)
        for stream in old[: len(self._heard) - HEARD_STREAMS_MAX]:
            del self._heard[stream]
            self._shared.journal.save_heard(stream, None)

    def _confirm(self, peer: Peer, heard: Heard, answer: Answer, *, wait: bool = False) -> None:
        """In order: a number stands for all before it."""
        body = encode(heard)
        if not wait and not peer.acks_waiting:
            answer(HEARD, body)
            return
        peer.acks_waiting += 1
        journal = self._shared.journal

        def act(stored: bool) -> None:
            if not stored:
                journal.wait_on(act)  # the sender keeps it until our disk is well
                return
            peer.acks_waiting -= 1
            answer(HEARD, body)

        journal.when_stored(act)
