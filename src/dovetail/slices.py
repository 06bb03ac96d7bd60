"""Long work in slices, so that no client keeps the loop from the others. Pure.

A work is a generator. It does a piece, about a millisecond of it, and yields; `run` goes on with it
in a later turn of the loop. Rules:

- The first piece is done at once. Most work ends there, and is never put off.
- All works together have one budget a turn, which the shell gives (`run`). They take turns, piece
  by piece: nine clients that leave cost a turn no more than one.
- What is half done between two pieces must not show. Whoever begins a work says what others see
  meanwhile: of a session that has ended, nothing (broker/session_lifetime.py); of a SUBSCRIBE that
  has not been answered, some of its filters (broker/subscribe.py). A publication is never half
  done: its receivers are looked for in pieces, and get it in one (broker/dispatch.py).
- A client's work ends with its connection (broker/client_link.py).
- Who waits for the end of a work is told by the work itself, in its last piece.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import TypeVar, cast

Work = Generator[None, None, None]
Result = TypeVar("Result")

_DONE = object()


class Slices:
    """The works of one broker that are not done."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake`: have `run` called in the next turn."""
        self._wake = wake
        self._works: deque[Work] = deque()

    def __len__(self) -> int:
        return len(self._works)

    def begin(self, work: Work) -> None:
        """Do its first piece now, and the others in turns to come."""
        if not is_done(work):
            self.put_off(work)

    def put_off(self, work: Work) -> None:
        """Do its first piece in a turn to come, too: others ask for the same at this moment."""
        if not self._works:
            self._wake()
        self._works.append(work)

    def run(self, is_time_up: Callable[[], bool]) -> None:
        """Do one piece at least, and more until the time is up.

        A work that fails is dropped, and the caller is told: the others go on in the next turn.
        """
        works = self._works
        try:
            while works:
                work = works.popleft()
                if not is_done(work):
                    works.append(work)
                if is_time_up():
                    return
        finally:
            if works:
                self._wake()


def is_done(work: Work) -> bool:
    """Do the next piece of a work; was it the last?"""
    return next(work, _DONE) is _DONE


def in_one_go(work: Generator[None, None, Result]) -> Result:
    """Do all of a work, where nobody waits for anything else; returns what it does."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return cast("Result", end.value)
