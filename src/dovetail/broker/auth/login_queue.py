"""The queue of logins whose password has to be checked: their order, and refusals. Pure.

A password check takes tens of milliseconds by design, and there is one at a time. So a client that
guesses passwords takes time from everybody who logs in. Therefore:

- Logins wait in lanes. Each address is a lane (in IPv6 each /64 prefix). A user who has logged in
  from an address before has a lane of their own there.
- Lanes take turns, one check each. Lanes of known users and lanes of addresses take turns with each
  other. So a flood in one lane delays any other lane by a check or two.
- A wrong password adds a share of a minute to the penalty of its lane (`FailedLogins`). A lane with
  a penalty of a minute is throttled: its logins are refused until the penalty has decreased.
- If more than `waiting_max` logins wait, the newest one of the longest lane is refused. Between
  lanes of the same length, an address is refused before a known user.
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
    """A user who is known there; None for all others."""


class FailedLogins:
    """The penalties of lanes for wrong passwords. It remembers the latest `lanes_max` lanes."""

    def __init__(self, per_minute_max: int, lanes_max: int) -> None:
        """With a `per_minute_max` of 0 there are no penalties."""
        self._seconds = MINUTE_SECONDS / per_minute_max if per_minute_max else 0.0
        self._lanes_max = lanes_max
        self._penalty_until: dict[Lane, float] = {}

    def add(self, lane: Lane, now: float) -> None:
        if not self._seconds:
            return
        penalty_until = max(now, self._penalty_until.pop(lane, now)) + self._seconds
        if len(self._penalty_until) >= self._lanes_max:
            del self._penalty_until[next(iter(self._penalty_until))]
        self._penalty_until[lane] = penalty_until

    def is_throttled(self, lane: Lane, now: float) -> bool:
        """Would one more failure make the penalty longer than a minute?"""
        penalty_until = self._penalty_until.get(lane)
        if penalty_until is None:
            return False
        if penalty_until <= now:
            del self._penalty_until[lane]
            return False
        # Sums of thirds and sevenths are never quite a minute.
        return penalty_until - now + self._seconds > MINUTE_SECONDS + 1e-6

    def __len__(self) -> int:
        return len(self._penalty_until)


class LoginQueue(Generic[Login]):
    """Waiting logins: `offer` adds one, `take` returns the next, `settle` takes its result."""

    def __init__(self, waiting_max: int, failures: FailedLogins) -> None:
        self._waiting_max = waiting_max
        self.failures = failures
        self._known: dict[Lane, deque[Login]] = {}
        self._others: dict[Lane, deque[Login]] = {}
        """The lanes in which logins wait, in the order of their turns."""
        self._is_turn_of_known = True
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def offer(self, login: Login, lane: Lane, now: float) -> tuple[Login, ReasonCode] | None:
        """Add a login. Return the login that is refused for it, maybe itself, and the reason."""
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

    def settle(self, lane: Lane, now: float, *, is_correct: bool) -> list[Login]:
        """Note the result of a check. Return the waiting logins of a lane that is throttled now."""
        if is_correct:
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
        """Return the lane that loses a login to a new one in `lane`; None if it is refused."""

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
