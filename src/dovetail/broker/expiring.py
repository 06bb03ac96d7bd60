"""Messages that expire while they wait in queues (section 3.3.2.3.3). Pure.

What has expired is never sent, and does not count for longer than it must: it goes when its queue
is full and another message comes, when its turn to be sent comes, and on the tick. A tick looks at
so many entries and goes on with the next session at the next tick, so that nobody waits for it.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.broker.sending import Sending

_CHECKS_PER_TICK_MAX = 2_000
"""Entries, or sessions where nothing has expired; one queue is always looked at to its end."""


class Expiring:
    """The sessions that have such messages in their queues."""

    def __init__(self) -> None:
        self._next: OrderedDict[Sending, float] = OrderedDict()
        """In the order of their turns; nothing in the session's queue expires before this time."""

    def note(self, session: "Sending", expires_at: float) -> None:
        """A message waits that expires then."""
        if expires_at < self._next.get(session, float("inf")):
            self._next[session] = expires_at

    def forget(self, session: "Sending") -> None:
        self._next.pop(session, None)

    def drop(self, session: "Sending", now: float) -> bool:
        """Take away what has expired; False if there was nothing."""
        if self._next.get(session, float("inf")) > now:
            return False
        waiting = len(session.queue)
        expires_next = session.drop_expired(now)
        if expires_next is None:
            del self._next[session]
        else:
            self._next[session] = expires_next
        return len(session.queue) < waiting

    def tick(self, now: float) -> None:
        checks = 0
        for _ in range(len(self._next)):
            if checks >= _CHECKS_PER_TICK_MAX:
                return
            session, when = next(iter(self._next.items()))
            self._next.move_to_end(session)
            checks += 1 if when > now else len(session.queue)
            self.drop(session, now)

    def __len__(self) -> int:
        return len(self._next)
