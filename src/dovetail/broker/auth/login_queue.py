"""Logins that wait for their password to be checked: which is next, and which are refused. Pure.

A check takes tens of milliseconds by design, one after the other, so whoever guesses passwords
takes time from everybody who logs in. Therefore:

- Logins wait in lanes. An address is a lane (of IPv6 a /64 prefix); a user who has logged in from
  an address before has a lane of their own there.
- Lanes take turns, one check each; lanes of known users and of addresses take turns with each
  other. So a flood in one lane delays any other lane by a check or two.
- A wrong password costs its lane a share of a minute (`Failures`), a right one nothing. A lane that
  owes a whole minute is throttled: its logins are refused until it owes less.
- Of more than `waiting_max` logins the newest of the longest lane is refused, and of an address
  rather than of a known user.
"""

from collections import deque
from itertools import chain
from typing import Generic, NamedTuple, TypeVar

from dovetail.errors import ReasonCode

MINUTE_SECONDS = 60.0

Login = TypeVar("Login")


class Lane(NamedTuple):
    network: str
    user: str | None = None
    """Of one who is known there; None: all others."""


class Failures:
    """What lanes owe for wrong passwords: for so many of them, the latest ones."""

    def __init__(self, per_minute_max: int, lanes_max: int) -> None:
        """`per_minute_max` 0: they owe nothing."""
        self._seconds = MINUTE_SECONDS / per_minute_max if per_minute_max else 0.0
        self._lanes_max = lanes_max
        self._owes_until: dict[Lane, float] = {}

    def add(self, lane: Lane, now: float) -> None:
        if not self._seconds:
            return
        owes_until = max(now, self._owes_until.pop(lane, now)) + self._seconds
        if len(self._owes_until) >= self._lanes_max:
            del self._owes_until[next(iter(self._owes_until))]
        self._owes_until[lane] = owes_until

    def is_throttled(self, lane: Lane, now: float) -> bool:
        """Would one more failure be more than a minute's?"""
        owes_until = self._owes_until.get(lane)
        if owes_until is None:
            return False
        if owes_until <= now:
            del self._owes_until[lane]
            return False
        # Sums of thirds and sevenths are never quite a minute.
        return owes_until - now + self._seconds > MINUTE_SECONDS + 1e-6

    def __len__(self) -> int:
        return len(self._owes_until)


class LoginQueue(Generic[Login]):
    """Logins go in by `offer`, come out by `take`, and end in `settle`."""

    def __init__(self, waiting_max: int, failures: Failures) -> None:
        self._waiting_max = waiting_max
        self.failures = failures
        self._known: dict[Lane, deque[Login]] = {}
        self._others: dict[Lane, deque[Login]] = {}
        """Lanes in which somebody waits, in the order of their turns."""
        self._is_turn_of_known = True
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def offer(self, login: Login, lane: Lane, now: float) -> tuple[Login, ReasonCode] | None:
        """Return the login that is refused for it, maybe itself, and why."""
        if self.failures.is_throttled(lane, now):
            return login, ReasonCode.CONNECTION_RATE_EXCEEDED
        refused = None
        if self._count >= self._waiting_max:
            longest = self._longest(lane)
            if longest is None:
                return login, ReasonCode.SERVER_BUSY
            refused = self._pop(longest, newest=True), ReasonCode.SERVER_BUSY
        self._ring(lane).setdefault(lane, deque()).append(login)
        self._count += 1
        return refused

    def take(self) -> tuple[Login, Lane] | None:
        """Return the login whose turn it is."""
        first, second = self._known, self._others
        if not self._is_turn_of_known:
            first, second = second, first
        ring = first or second
        if not ring:
            return None
        self._is_turn_of_known = ring is self._others
        lane = next(iter(ring))
        login = self._pop(lane)
        if lane in ring:
            ring[lane] = ring.pop(lane)  # to the end of the line
        return login, lane

    def settle(self, lane: Lane, now: float, *, is_right: bool) -> list[Login]:
        """A password was checked. Return the logins that a throttled lane loses."""
        if is_right:
            return []
        self.failures.add(lane, now)
        if not self.failures.is_throttled(lane, now):
            return []
        lost = self._ring(lane).pop(lane, deque())
        self._count -= len(lost)
        return [*lost]

    def _ring(self, lane: Lane) -> dict[Lane, deque[Login]]:
        return self._others if lane.user is None else self._known

    def _longest(self, lane: Lane) -> Lane | None:
        """The lane that gives way to one more in `lane`. None: that one itself."""

        def length(one: Lane) -> tuple[int, bool]:
            count = len(self._ring(one).get(one, ())) + (one == lane)
            return count, one.user is None

        longest = max(chain(self._known, self._others), key=length)
        return longest if length(longest) > length(lane) else None

    def _pop(self, lane: Lane, *, newest: bool = False) -> Login:
        ring = self._ring(lane)
        waiting = ring[lane]
        login = waiting.pop() if newest else waiting.popleft()
        if not waiting:
            del ring[lane]
        self._count -= 1
        return login
