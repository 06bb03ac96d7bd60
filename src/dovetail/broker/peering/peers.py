"""The other brokers, as this one knows them: where each was last, and what it is owed. Pure.

Rules:

- Who was named once is known until it is forgotten, also through a restart: it may be owed what
  nobody else can tell it.
- Of a peer that is known, everything is owed until its sketch says what it needs
  (sketch_exchange.py).
- One that left and keeps nothing needs nothing, and is soon forgotten (broker_agent.py).
"""

from collections.abc import Callable, Iterator

from dovetail.broker.peering.outbox import Outbox
from dovetail.broker.peering.peer_messages import MESSAGE, encode, publication_of
from dovetail.broker.shared_state import Shared
from dovetail.broker.store.journal import Left, MemberRow
from dovetail.messages import Message


class Peer:
    """Another broker."""

    __slots__ = ("acks_waiting", "outbox", "stream")

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.stream = 0  # whose publications come over its connection; 0: it has not said
        self.acks_waiting = 0


class Peers:
    """All of them, by name."""

    def __init__(
        self,
        shared: Shared,
        *,
        send: Callable[[str, int, bytes], bool],
        expect: Callable[[str], None],
    ) -> None:
        """`expect` hears of each that becomes known."""
        self.known: dict[str, Peer] = {}
        self.addresses: dict[str, str] = {}
        """Where they were last."""
        self.behind: set[str] = set()
        """Those for which something at QoS 0 waits in their outboxes."""
        self.left: dict[str, Left] = {}
        """Those that said goodbye, and how."""
        self._shared = shared
        self._send = send
        self._expect = expect

    def restore(self, members: dict[str, MemberRow]) -> None:
        for name, (address, left) in members.items():
            self.addresses[name] = address
            if left:
                self.left[name] = left
            self.know(name)

    def know(self, name: str) -> Peer:
        """From now on, if it was not known."""
        peer = self.known.get(name)
        if peer is None:

            def send(sequence: int, message: Message, mark: bytes) -> bool:
                publication = publication_of(message, self._shared.now, sequence, mark)
                return self._send(name, MESSAGE, encode(publication))

            peer = self.known[name] = Peer(Outbox(name, self._shared, send, self.behind))
            self._expect(name)
        return peer

    def is_at(self, name: str, address: str) -> None:
        self.know(name)
        if self.addresses.get(name) != address:
            self.addresses[name] = address
            self._save(name)

    def has_left(self, name: str, left: Left) -> None:
        """Or is back: `Left.NO`."""
        if self.left.get(name, Left.NO) is left:
            return
        if left:
            self.left[name] = left
        else:
            del self.left[name]
        self._save(name)

    def _save(self, name: str) -> None:
        row = MemberRow(self.addresses.get(name, ""), self.left.get(name, Left.NO))
        self._shared.journal.save_member(name, row)

    def forget(self, name: str) -> Peer | None:
        """It will not come back. What is left of it, if it was known."""
        self.addresses.pop(name, None)
        self.left.pop(name, None)
        self._shared.journal.save_member(name, None)
        return self.known.pop(name, None)

    def names(self) -> tuple[str, ...]:
        return tuple(self.known)

    def is_up(self, name: str) -> bool:
        """Does it take what it is sent?"""
        outbox = self.know(name).outbox
        return outbox.is_up and not outbox.is_late

    def up(self) -> Iterator[str]:
        return filter(self.is_up, self.known)
