"""The other brokers that this one knows: the last address and the outbox of each. Pure.

Rules:

- A broker that was named once is known until it is forgotten, also through a restart: its outbox
  may hold messages that no other broker has.
- A known peer gets every publication until its sketch says what it needs (sketch_exchange.py).
- A broker that left and keeps no sessions needs nothing. It is soon forgotten (broker_agent.py).
"""

from collections.abc import Callable, Iterator

from dovetail.broker.outgoing_run import StoredRun
from dovetail.broker.peering.outbox import Outbox
from dovetail.broker.peering.peer_messages import (
    MESSAGE,
    RUN,
    ForwardedRun,
    encode,
    to_publication,
)
from dovetail.broker.shared_state import SharedState
from dovetail.broker.store.journal import LeaveState, MemberRow
from dovetail.messages import Message


class PeerBroker:
    """Another broker."""

    __slots__ = ("acks_waiting", "outbox", "stream")

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.stream = 0  # of the publications over its connection; 0: it has not said
        self.acks_waiting = 0


class Peers:
    """All other brokers, by name."""

    def __init__(
        self,
        shared: SharedState,
        *,
        send: Callable[[str, int, bytes], bool],
        expect: Callable[[str], None],
    ) -> None:
        """`expect` is called with the name of each broker that becomes known."""
        self.known: dict[str, PeerBroker] = {}
        self.addresses: dict[str, str] = {}
        """Their last addresses."""
        self.behind: set[str] = set()
        """Peers with QoS 0 publications in their outboxes."""
        self.left: dict[str, LeaveState] = {}
        """Peers that have left the cluster, and what they keep."""
        self._shared = shared
        self._send = send
        self._expect = expect

    def restore(self, members: dict[str, MemberRow]) -> None:
        for name, (address, left) in members.items():
            self.addresses[name] = address
            if left:
                self.left[name] = left
            self.get_or_add(name)

    def get_or_add(self, name: str) -> PeerBroker:
        """Return the peer. It is known from now on, if it was not."""
        peer = self.known.get(name)
        if peer is None:

            def send(sequence: int, message: Message | StoredRun, scope: bytes) -> bool:
                if isinstance(message, StoredRun):
                    _, version, *_ = message.run
                    run = ForwardedRun(sequence, version, message.origin, message.run.data)
                    return self._send(name, RUN, run.encoded())
                publication = to_publication(message, self._shared.now, sequence, scope)
                return self._send(name, MESSAGE, encode(publication))

            peer = self.known[name] = PeerBroker(Outbox(name, self._shared, send, self.behind))
            self._expect(name)
        return peer

    def is_at(self, name: str, address: str) -> None:
        self.get_or_add(name)
        if self.addresses.get(name) != address:
            self.addresses[name] = address
            self._save(name)

    def has_left(self, name: str, left: LeaveState) -> None:
        """Note that a peer has left, or with `LeaveState.NO` that it is back."""
        if self.left.get(name, LeaveState.NO) is left:
            return
        if left:
            self.left[name] = left
        else:
            del self.left[name]
        self._save(name)

    def _save(self, name: str) -> None:
        row = MemberRow(self.addresses.get(name, ""), self.left.get(name, LeaveState.NO))
        self._shared.journal.save_member(name, row)

    def forget(self, name: str) -> PeerBroker | None:
        """Forget a peer that will not return; return it if it was known."""
        self.addresses.pop(name, None)
        self.left.pop(name, None)
        self._shared.journal.save_member(name, None)
        return self.known.pop(name, None)

    def names(self) -> tuple[str, ...]:
        return tuple(self.known)

    def is_up(self, name: str) -> bool:
        """Return whether the peer takes what we send."""
        outbox = self.get_or_add(name).outbox
        return outbox.is_up and not outbox.is_stalled

    def up(self) -> Iterator[str]:
        return filter(self.is_up, self.known)
