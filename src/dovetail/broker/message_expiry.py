"""Messages that expire while they wait in queues (section 3.3.2.3.3). Pure.

The broker never sends an expired message. It drops one when its queue is full and another message
comes, when its turn to be sent comes, or on a tick. A tick looks at a bounded number of entries;
the next tick continues with the next session.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.broker.session_sender import SessionSender

_CHECKS_PER_TICK_MAX = 2_000
"""Queue entries, plus sessions without expired messages. A queue is always checked to its end."""


class MessageExpiry:
    """The sessions whose queues have messages that expire."""

    def __init__(self) -> None:
        self._next: OrderedDict[SessionSender, float] = OrderedDict()
        """In the order of checks. No message of the session's queue expires before this time."""

    def note(self, session: "SessionSender", expires_at: float) -> None:
        """Note that a queued message expires at this time."""
        if expires_at < self._next.get(session, float("inf")):
            self._next[session] = expires_at

    def forget(self, session: "SessionSender") -> None:
        self._next.pop(session, None)

    def drop(self, session: "SessionSender", now: float) -> bool:
        """Drop the expired messages of a session. Return False if there are none."""
        if self._next.get(session, float("inf")) > now:
            return False
        waiting = session.queued
        expires_next = session.drop_expired(now)
        if expires_next is None:
            del self._next[session]
        else:
            self._next[session] = expires_next
        return session.queued < waiting

    def tick(self, now: float) -> None:
        checks = 0
        for _ in range(len(self._next)):
            if checks >= _CHECKS_PER_TICK_MAX:
                return
            session, when = next(iter(self._next.items()))
            self._next.move_to_end(session)
            checks += 1 if when > now else session.queued
            self.drop(session, now)

    def __len__(self) -> int:
        return len(self._next)
