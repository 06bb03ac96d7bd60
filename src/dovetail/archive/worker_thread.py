"""A thread that runs tasks in order, for an event loop that must not wait for a disk.

It is a daemon thread: a process ends without waiting for a disk that does not answer.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")


class WorkerThread:
    """Runs tasks in order."""

    def __init__(self, name: str) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def do(self, task: Callable[[], None]) -> None:
        self._tasks.put(task)

    async def result_of(self, task: Callable[[], T]) -> T:
        """Run a task, and return its result or raise its error."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def settle(act: Callable[[], None]) -> None:
            if not result.cancelled():
                act()

        def run() -> None:
            try:
                value = task()
            except Exception as error:  # noqa: BLE001 (the caller gets it)
                act = partial(result.set_exception, error)
            else:
                act = partial(result.set_result, value)
            with suppress(RuntimeError):  # the loop has ended without us
                loop.call_soon_threadsafe(settle, act)

        self.do(run)
        return await result

    def stop(self) -> None:
        """End the thread after the tasks that it has."""
        self._tasks.put(None)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            del task  # free its memory while waiting
