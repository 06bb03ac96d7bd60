"""Shows the progress of streams: one updated line on a terminal, or plain lines elsewhere.

Messages (`say`) stay on the screen above that line.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import Console

from dovetail.pipeline.spark.progress import LINE_SECONDS
from dovetail.pipeline.stream.queries import Stream
from dovetail.pipeline.stream.tally import line
from dovetail.process.terminal import moving_line

Show = Callable[[Sequence[Stream]], None]
Say = Callable[[str], None]


@contextlib.contextmanager
def show_streams(
    console: Console, waiting: Mapping[str, int], clock: Callable[[], float] = time.monotonic
) -> Iterator[tuple[Show, Say]]:
    """`waiting`: the number of rows that wait to be read, by stream, as far as known."""

    def text_of(streams: Sequence[Stream]) -> str:
        return "; ".join(line(one.name, one.tally, waiting.get(one.name)) for one in streams)

    def say(text: str) -> None:
        console.print(text)

    if console.is_terminal:
        with moving_line(console, "starting") as update:
            yield lambda streams: update(text_of(streams)), say
        return
    shown, shown_at = "", clock() - LINE_SECONDS

    def show(streams: Sequence[Stream]) -> None:
        nonlocal shown, shown_at
        text = text_of(streams)
        if text != shown and clock() - shown_at >= LINE_SECONDS:
            shown, shown_at = text, clock()
            console.out(text, highlight=False)

    yield show, say
