"""What is printed: text that a terminal shows and never obeys, whoever wrote it.

Topics, filters, names, reasons and messages come from others. A terminal takes control characters
in them for orders, and marks of direction can turn a line around. So all that Dovetail prints goes
through this module: nothing else calls `print`, or makes a console of Rich
(tests/test_architecture.py). Text without such characters is printed as it is.

Messages that `dovetail sub` writes to a file or a pipe are data for a program, and stay as they
came; so do those of `--format raw` (client/message_format.py).
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
    r"""Return `text` with an escape such as \x1b in the place of each unsafe character.

    `keep`: characters that stay, such as line breaks of our own.
    """
    return _UNSAFE.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def printable_json(document: str) -> str:
    """Return a JSON text of the same meaning, without unsafe characters but line breaks."""
    # Outside of strings there are none of them: within, JSON has its own way to write them.
    return _UNSAFE.sub(
        lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", document
    )


def say(*lines: str, stream: IO[str] | None = None) -> None:
    """Print lines, made printable. Each stays one line, whatever is in it."""
    print("\n".join(map(printable, lines)), file=stream, flush=True)


def say_text(text: str, stream: IO[str] | None = None) -> None:
    """Print a text that has lines of its own."""
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
    """Return a console of Rich, with Rich's options, that takes no text for markup or control."""
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
    """Show words that can be changed, beside something that moves, while the block runs."""
    from rich.text import Text

    # A string would be taken for markup, whatever the console is told.
    with screen.status(Text(words)) as status:
        yield lambda words: status.update(Text(words))


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number <= 0xFF else f"\\u{number:04x}"
