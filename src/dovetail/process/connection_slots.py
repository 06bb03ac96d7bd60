"""Slots for connections that have proven nothing yet, and which of them gives way. Pure.

    enter -> silent -> spoken -> leave
                          | ^
                     hold v | release
                          held

Rules:

- A newcomer gets a slot as long as one connection may be evicted.
- The address with the most connections gives way, so a flood costs the address that it comes from.
- Within an address the oldest silent connection goes while more are silent than have spoken, and
  the oldest of all otherwise. So a silent flood does not push out the few that have spoken; and no
  kind of flood pushes a newcomer out before half as many others as the address has came after it.
- A connection that is held is at work for us: it is never evicted.
- Age is the order of arrival. There is no clock: a peer cannot stay young by sending bytes.
"""

from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar

Guest = TypeVar("Guest", bound=Hashable)


class _Address(Generic[Guest]):
    """The connections of one address."""

    __slots__ = ("evictable", "held", "silent")

    def __init__(self) -> None:
        self.evictable: dict[Guest, int] = {}
        """Their numbers, oldest first."""
        self.silent: dict[Guest, None] = {}
        """Those of them that have not spoken, in the same order."""
        self.held: set[Guest] = set()

    def __len__(self) -> int:
        return len(self.evictable) + len(self.held)

    def victim(self) -> Guest | None:
        """The connection that goes first."""
        are_mostly_silent = 2 * len(self.silent) > len(self.evictable)
        return next(iter(self.silent if are_mostly_silent else self.evictable), None)

    def drop(self, guest: Guest) -> None:
        self.evictable.pop(guest, None)
        self.silent.pop(guest, None)
        self.held.discard(guest)


class Slots(Generic[Guest]):
    """Room for `count_max` connections, of which one address has `per_address_max` at most."""

    def __init__(self, count_max: int, per_address_max: int) -> None:
        self._count_max = count_max
        self._per_address_max = per_address_max
        self._address_of: dict[Guest, str] = {}
        self._addresses: dict[str, _Address[Guest]] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._address_of)

    def __contains__(self, guest: Guest) -> bool:
        return guest in self._address_of

    def enter(self, guest: Guest, address: str) -> Guest | None:
        """Return the connection that has to go: `guest` itself if none may be evicted."""
        own = self._addresses.get(address)
        gone = None
        if own is not None and len(own) >= self._per_address_max:
            gone = own.victim()
        elif len(self) >= self._count_max:
            gone = self._victim(own)
        else:
            self._add(guest, address)
            return None
        if gone is None:
            return guest
        self.leave(gone)
        self._add(guest, address)
        return gone

    def speak(self, guest: Guest) -> None:
        """It has said something that makes sense."""
        own = self._of(guest)
        if own is not None:
            own.silent.pop(guest, None)

    def hold(self, guest: Guest) -> None:
        """It is at work for us, and not to be evicted."""
        own = self._of(guest)
        if own is not None:
            own.drop(guest)
            own.held.add(guest)

    def release(self, guest: Guest) -> None:
        """It may be evicted again, as the youngest that has spoken."""
        own = self._of(guest)
        if own is not None and guest in own.held:
            own.held.remove(guest)
            own.evictable[guest] = next(self._numbers)

    def leave(self, guest: Guest) -> None:
        """Free its slot, if it has one."""
        own = self._of(guest)
        if own is not None:
            own.drop(guest)
            address = self._address_of.pop(guest)
            if not own:
                del self._addresses[address]

    def _add(self, guest: Guest, address: str) -> None:
        self._address_of[guest] = address
        own = self._addresses.setdefault(address, _Address())
        own.evictable[guest] = next(self._numbers)
        own.silent[guest] = None

    def _of(self, guest: Guest) -> _Address[Guest] | None:
        address = self._address_of.get(guest)
        return None if address is None else self._addresses[address]

    def _victim(self, own: _Address[Guest] | None) -> Guest | None:
        """Of the address with the most, the newcomer counted; of several, the oldest."""
        found = [
            (len(address.evictable) + (address is own), -address.evictable[guest], guest)
            for address in self._addresses.values()
            if (guest := address.victim()) is not None
        ]
        return max(found, key=lambda one: one[:2])[2] if found else None
