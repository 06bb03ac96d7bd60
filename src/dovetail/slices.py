"""A scheduler that runs long work in slices, so that no client blocks the event loop. Pure.

A work is a generator. It runs for about a millisecond and yields; the scheduler continues it in a
later turn of the loop. Rules:

- The first slice runs at once. Most works end there and are never deferred.
- All works together have one time budget per turn, which the shell passes to `run`. They take
  turns, slice by slice. If nine clients leave, a turn takes no longer than if one leaves.
- Others must not see a half-done work. The module that starts it defines what they see between two
  slices: nothing of a session that has ended (broker/session_lifetime.py), some filters of a
  SUBSCRIBE that is not answered yet (broker/subscribe.py). A publication is never half done: the
  search for its receivers is sliced, and the delivery is not (broker/dispatch.py).
- The work of a client ends with its connection (broker/packet_reader.py).
- A work itself notifies those that wait for its end, in its last slice.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import TypeVar, cast

Work = Generator[None, None, None]
Result = TypeVar("Result")

_DONE = object()


class SliceScheduler:
    """Runs the unfinished works of one broker."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` asks the event loop to call `run` in the next turn."""
        self._wake = wake
        self._works: deque[Work] = deque()

    def __len__(self) -> int:
        return len(self._works)

    def begin(self, work: Work) -> None:
        """Run the first slice now, and the others in later turns."""
        if not run_slice(work):
            self.defer(work)

    def defer(self, work: Work) -> None:
        """Run even the first slice in a later turn: many others want the same at this moment."""
        if not self._works:
            self._wake()
        self._works.append(work)

    def run(self, is_time_up: Callable[[], bool]) -> None:
        """Run at least one slice, and more until the time is up.

        If a work fails, it is dropped and the exception is raised; the others continue in the next
        turn.
        """
        works = self._works
        try:
            while works:
                work = works.popleft()
                if not run_slice(work):
                    works.append(work)
                if is_time_up():
                    return
        finally:
            if works:
                self._wake()


def run_slice(work: Work) -> bool:
    """Run the next slice of a work. Return True if it was the last."""
    return next(work, _DONE) is _DONE


def run_to_end(work: Generator[None, None, Result]) -> Result:
    """Run all of a work now, where nothing else waits. Return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return cast("Result", end.value)
