"""Messages that expire while they wait in queues (section 3.3.2.3.3). Pure.

The broker never sends an expired message. It drops one when its queue is full and another message
comes, when its turn to be sent comes, or on a tick. A tick looks at a bounded number of entries;
the next tick continues with the next queue.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.broker.outgoing_queue import OutgoingQueue

_CHECKS_PER_TICK_MAX = 2_000
"""Queue entries, plus queues without expired messages. A queue is always checked to its end."""


class MessageExpiry:
    """The queues with messages that expire."""

    def __init__(self) -> None:
        self._next: OrderedDict[OutgoingQueue, float] = OrderedDict()
        """In the order of checks. No message of the queue expires before this time."""

    def note(self, queue: "OutgoingQueue", expires_at: float) -> None:
        """Note that a queued message expires at this time."""
        if expires_at < self._next.get(queue, float("inf")):
            self._next[queue] = expires_at

    def forget(self, queue: "OutgoingQueue") -> None:
        self._next.pop(queue, None)

    def drop(self, queue: "OutgoingQueue", now: float) -> bool:
        """Drop the expired messages of a queue. Return False if there are none."""
        if self._next.get(queue, float("inf")) > now:
            return False
        waiting = queue.count
        expires_next = queue.drop_expired(now)
        if expires_next is None:
            del self._next[queue]
        else:
            self._next[queue] = expires_next
        return queue.count < waiting

    def tick(self, now: float) -> None:
        checks = 0
        for _ in range(len(self._next)):
            if checks >= _CHECKS_PER_TICK_MAX:
                return
            queue, when = next(iter(self._next.items()))
            self._next.move_to_end(queue)
            checks += 1 if when > now else queue.count
            self.drop(queue, now)

    def __len__(self) -> int:
        return len(self._next)
