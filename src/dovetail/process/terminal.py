"""Prints text so that a terminal shows it and never executes it.

Topics, filters, names, reasons and messages come from others. A terminal would execute control
characters in them, and marks of direction could reverse a line. So everything that Dovetail prints
goes through this module: no other module calls `print`, or makes a console of Rich
(tests/test_architecture.py). Text without such characters is printed unchanged.

Messages that `dovetail sub` writes to a file or a pipe are data for a program and stay unchanged;
so do those of `--format raw` (client/message_format.py).
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_UNSAFE = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # controls: C0, DEL and C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks of direction
    "\u2028\u2029"  # separators of lines and paragraphs
    "\ud800-\udfff"  # surrogates, which no encoding has
    "]"
)


def printable(text: str, *, keep: str = "") -> str:
    r"""Return `text` with an escape such as \x1b instead of each unsafe character.

    `keep`: characters that stay, such as our own line breaks.
    """
    return _UNSAFE.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def printable_json(document: str) -> str:
    """Return an equivalent JSON text without unsafe characters, except line breaks."""
    # Unsafe characters occur only inside strings, where JSON has an escape for them.
    return _UNSAFE.sub(
        lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", document
    )


def say(*lines: str, stream: IO[str] | None = None) -> None:
    """Print lines, made printable. Each stays one line, even if it has line breaks."""
    print("\n".join(map(printable, lines)), file=stream, flush=True)


def say_text(text: str, stream: IO[str] | None = None) -> None:
    """Print a text of several lines."""
    say(*text.split("\n"), stream=stream)


def say_json(document: str) -> None:
    print(printable_json(document), flush=True)


def complain(text: str) -> None:
    """Print a text to standard error."""
    say_text(text, sys.stderr)


def console(
    *,
    stderr: bool = False,
    file: IO[str] | None = None,
    width: int | None = None,
    highlight: bool = True,
    soft_wrap: bool = False,
) -> "Console":
    """Return a console of Rich that never interprets text as markup or control characters."""
    from rich.console import Console as RichConsole
    from rich.segment import Segment

    class PrintableConsole(RichConsole):
        def _render_buffer(self, buffer: Iterable[Segment]) -> str:
            """Rich knows which segments are text, and which are its own control codes."""
            return super()._render_buffer(
                segment
                if segment.control
                else Segment(printable(segment.text, keep="\n"), segment.style)
                for segment in buffer
            )

    return PrintableConsole(
        stderr=stderr,
        file=file,
        width=width,
        highlight=highlight,
        soft_wrap=soft_wrap,
        markup=False,
        emoji=False,
    )


@contextmanager
def moving_line(screen: "Console", words: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner beside `words` while the block runs; the yielded function changes them."""
    from rich.text import Text

    # Rich would interpret a string as markup, even on this console.
    with screen.status(Text(words)) as status:
        yield lambda words: status.update(Text(words))


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number <= 0xFF else f"\\u{number:04x}"
