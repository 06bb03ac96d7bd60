"""The last number that we have taken from each peer's stream: a number is taken once. Pure.

Rules:

- A stream belongs to one data folder, through all lives of its broker. Its numbers rise
  (outbox.py).
- One batch holds the number, the deliveries to persistent sessions, and publications that are
  passed on. We acknowledge when it is on disk. The peer does not send again what was acknowledged.
- A position stays when its broker is forgotten: it may return, with spooled messages for us. The
  number of positions is bounded.
"""

from collections.abc import Callable

from dovetail.broker.peering.limits import PEER_FRAME_EXTRA_BYTES, STREAM_POSITIONS_MAX
from dovetail.broker.peering.peer_messages import (
    ACK,
    CopiedFolderError,
    ForwardedPublication,
    ForwardedRun,
    StreamAck,
    encode,
)
from dovetail.broker.peering.peers import PeerBroker, Peers
from dovetail.broker.shared_state import SharedState
from dovetail.cluster.limits import PEER_FRAME_BYTES_MAX
from dovetail.errors import PeerError

Answer = Callable[[int, bytes], object]
"""Sends a frame back over the connection that a frame came by."""


class StreamPositions:
    """The positions in the streams of all peers."""

    def __init__(
        self,
        own: int,
        shared: SharedState,
        peers: Peers,
        *,
        is_live: Callable[[str], bool],
        take: Callable[[str, ForwardedPublication | ForwardedRun], None],
    ) -> None:
        """`own` is our stream; `take` gets a peer's name and its new publication."""
        self._own = own
        self._shared = shared
        self._peers = peers
        self._is_live = is_live
        self._take = take
        self._positions: dict[int, int] = {}
        self._message_bytes_max = max(
            PEER_FRAME_BYTES_MAX - PEER_FRAME_EXTRA_BYTES, shared.limits.packet_bytes_max
        )

    def restore(self, positions: dict[int, int]) -> None:
        self._positions.update(positions)

    def begin(self, name: str, stream: int) -> None:
        """Note that a peer sends this stream from now on.

        Refuse a stream that another broker uses: its publications would be taken for that one's.
        """
        peer = self._peers.get_or_add(name)
        for other, known in self._peers.known.items():
            if known.stream == stream and other != name and self._is_live(other):
                raise CopiedFolderError(f"the data folder of {name} is a copy of that of {other}")
        if stream == self._own:
            raise CopiedFolderError(f"the data folder of {name} is a copy of ours, or ours of it")
        peer.stream = stream

    def send_position(self, name: str, answer: Answer) -> None:
        """Tell a peer our position in its stream, and the largest message that we take."""
        self._forget_oldest()
        peer = self._peers.get_or_add(name)
        ack = StreamAck(self._positions.get(peer.stream, 0), self._message_bytes_max)
        self._acknowledge(peer, ack, answer)

    def take(
        self, name: str, publication: ForwardedPublication | ForwardedRun, answer: Answer
    ) -> None:
        journal = self._shared.journal
        peer = self._peers.get_or_add(name)
        sequence = publication.sequence
        if sequence and not peer.stream:
            raise PeerError("a numbered publication before its stream was named")
        if sequence and sequence <= self._positions.get(peer.stream, 0):
            self._acknowledge(peer, StreamAck(sequence), answer)
            return
        rows_before = journal.rows_written
        self._take(name, publication)
        if not sequence:
            return
        self._positions[peer.stream] = sequence
        has_rows = journal.rows_written != rows_before
        if has_rows:
            journal.save_heard(peer.stream, sequence)
        self._acknowledge(peer, StreamAck(sequence), answer, wait=has_rows)

    def _forget_oldest(self) -> None:
        """Forget the oldest streams of brokers that are not known any more."""
        if len(self._positions) <= STREAM_POSITIONS_MAX:
            return
        known = {peer.stream for peer in self._peers.known.values()}
        old = sorted(self._positions.keys() - known, key=self._positions.__getitem__)
        for stream in old[: len(self._positions) - STREAM_POSITIONS_MAX]:
            del self._positions[stream]
            self._shared.journal.save_heard(stream, None)

    def _acknowledge(
        self, peer: PeerBroker, ack: StreamAck, answer: Answer, *, wait: bool = False
    ) -> None:
        """Acknowledge in order: a number stands for all before it."""
        body = encode(ack)
        if not wait and not peer.acks_waiting:
            answer(ACK, body)
            return
        peer.acks_waiting += 1
        journal = self._shared.journal

        def act(stored: bool) -> None:
            if not stored:
                journal.wait_on(act)  # the sender keeps it until our disk is well
                return
            peer.acks_waiting -= 1
            answer(ACK, body)

        journal.when_stored(act)
