"""Slots for connections that have not authenticated yet, and which of them is evicted. Pure.

    enter -> silent -> spoken -> leave
                          | ^
                     hold v | release
                          held

Rules:

- A new connection gets a slot as long as another one may be evicted.
- The address with the most connections loses one, so a flood costs the address that it comes from.
- Within an address the oldest silent connection goes while more are silent than have spoken, and
  the oldest of all otherwise. So a silent flood does not evict the few that have spoken. And no
  flood evicts a new connection before later ones arrived, half as many as the address has.
- A held connection waits for our answer: it is never evicted.
- Age is the order of arrival. There is no clock: a peer cannot stay young by sending bytes.
"""

from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar

Connection = TypeVar("Connection", bound=Hashable)


class _AddressSlots(Generic[Connection]):
    """The connections of one address."""

    __slots__ = ("evictable", "held", "silent")

    def __init__(self) -> None:
        self.evictable: dict[Connection, int] = {}
        """The numbers of the connections that may be evicted, oldest first."""
        self.silent: dict[Connection, None] = {}
        """Those of them that have not spoken, in the same order."""
        self.held: set[Connection] = set()

    def __len__(self) -> int:
        return len(self.evictable) + len(self.held)

    def victim(self) -> Connection | None:
        """Return the connection to evict first."""
        are_mostly_silent = 2 * len(self.silent) > len(self.evictable)
        return next(iter(self.silent if are_mostly_silent else self.evictable), None)

    def drop(self, connection: Connection) -> None:
        self.evictable.pop(connection, None)
        self.silent.pop(connection, None)
        self.held.discard(connection)


class ConnectionSlots(Generic[Connection]):
    """Room for `count_max` connections, of which one address has `per_address_max` at most."""

    def __init__(self, count_max: int, per_address_max: int) -> None:
        self._count_max = count_max
        self._per_address_max = per_address_max
        self._address_of: dict[Connection, str] = {}
        self._addresses: dict[str, _AddressSlots[Connection]] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._address_of)

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._address_of

    def enter(self, connection: Connection, address: str) -> Connection | None:
        """Give it a slot. Return the connection to close: `connection` itself if all are held."""
        own = self._addresses.get(address)
        gone = None
        if own is not None and len(own) >= self._per_address_max:
            gone = own.victim()
        elif len(self) >= self._count_max:
            gone = self._victim(own)
        else:
            self._add(connection, address)
            return None
        if gone is None:
            return connection
        self.leave(gone)
        self._add(connection, address)
        return gone

    def speak(self, connection: Connection) -> None:
        """Mark a connection that has sent something valid."""
        own = self._of(connection)
        if own is not None:
            own.silent.pop(connection, None)

    def hold(self, connection: Connection) -> None:
        """Protect a connection from eviction while it waits for us."""
        own = self._of(connection)
        if own is not None:
            own.drop(connection)
            own.held.add(connection)

    def release(self, connection: Connection) -> None:
        """Allow eviction again, as the youngest connection that has spoken."""
        own = self._of(connection)
        if own is not None and connection in own.held:
            own.held.remove(connection)
            own.evictable[connection] = next(self._numbers)

    def leave(self, connection: Connection) -> None:
        """Free its slot, if it has one."""
        own = self._of(connection)
        if own is not None:
            own.drop(connection)
            address = self._address_of.pop(connection)
            if not own:
                del self._addresses[address]

    def _add(self, connection: Connection, address: str) -> None:
        self._address_of[connection] = address
        own = self._addresses.setdefault(address, _AddressSlots())
        own.evictable[connection] = next(self._numbers)
        own.silent[connection] = None

    def _of(self, connection: Connection) -> _AddressSlots[Connection] | None:
        address = self._address_of.get(connection)
        return None if address is None else self._addresses[address]

    def _victim(self, own: _AddressSlots[Connection] | None) -> Connection | None:
        """Return the victim of the largest address, `own` counted with the new connection.

        Of several such addresses, the one with the oldest victim loses it.
        """
        found = [
            (len(address.evictable) + (address is own), -address.evictable[connection], connection)
            for address in self._addresses.values()
            if (connection := address.victim()) is not None
        ]
        return max(found, key=lambda candidate: candidate[:2])[2] if found else None
