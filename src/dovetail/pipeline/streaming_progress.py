"""How streams get on, for who watches: a line that is renewed, or plain lines where no terminal is.

A note (`say`) stays on the screen above it.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console

from dovetail.pipeline.progress import LINE_SECONDS
from dovetail.pipeline.streaming import Stream
from dovetail.pipeline.streaming_tally import lines

Show = Callable[[Sequence[Stream]], None]
Say = Callable[[str], None]


@contextlib.contextmanager
def show_streams(
    console: Console, clock: Callable[[], float] = time.monotonic
) -> Iterator[tuple[Show, Say]]:
    def say(text: str) -> None:
        console.print(text, markup=False)

    if console.is_terminal:
        with console.status("starting") as status:
            yield lambda streams: status.update(_line(streams)), say
        return
    shown, shown_at = "", clock() - LINE_SECONDS

    def show(streams: Sequence[Stream]) -> None:
        nonlocal shown, shown_at
        text = _line(streams)
        if text != shown and clock() - shown_at >= LINE_SECONDS:
            shown, shown_at = text, clock()
            console.out(text, highlight=False)

    yield show, say


def _line(streams: Sequence[Stream]) -> str:
    return lines([(one.name, one.tally) for one in streams])
