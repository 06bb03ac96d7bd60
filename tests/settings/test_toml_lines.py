"""Lines of values, in texts where each value is a different number."""

import tomllib
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.settings.toml_lines import KeyPath, LineIndex

KEYS = ("a", "b", "c-d", "1", '"q.[x]"', "'#'", '"\\u0041=\\""')
NOISE = ("", "  ", "# a = 1", "# [a]", "\t#\"\"\"'''")
TEXTS = (
    '""',
    '"#"',
    '"a = [\\"]"',
    "'\\'",
    '"""\n[a]\nb = 1\n"""',
    '"""\\"""""""',
    "'''\n[[a]]\n\\'''",
    "''''''''",
    '"""\\\\"""',
)
OTHERS = ("true", "1979-05-27 07:32:00", "-inf", "0xff")


class Writer:
    """Draws a valid document line by line; leaves are numbers, each used once, from 100001 on."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._numbers = count(100_001)
        self._newline = draw(st.sampled_from(("\n", "\r\n")))
        self.lines: list[str] = []

    def document(self) -> str:
        self._pairs()
        for _ in range(self._draw(st.integers(0, 5))):
            self._noise()
            opening, closing = self._draw(st.sampled_from((("[", "]"), ("[[", "]]"))))
            header = f"{opening}{self._dotted()}{closing}{self._trail()}"
            before = [*self.lines]
            self.lines.append(header)
            self._pairs()
            # Headers that clash with what is there are TOML's to refuse, and not of interest.
            if not valid(self._text()):
                self.lines = before
        return self._text()

    def _text(self) -> str:
        return self._newline.join(self.lines).replace("\r\n", "\n").replace("\n", self._newline)

    def _pairs(self) -> None:
        for _ in range(self._draw(st.integers(0, 4))):
            self._noise()
            before = [*self.lines]
            space = self._draw(st.sampled_from(("", " ", "\t")))
            pair = f"{space}{self._dotted()}{space}={space}{self._value(2)}{self._trail()}"
            self.lines.append(pair)
            if not valid(self._text()):
                self.lines = before

    def _dotted(self) -> str:
        dot = self._draw(st.sampled_from((".", " . ")))
        return dot.join(self._draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3)))

    def _noise(self) -> None:
        self.lines.extend(self._draw(st.lists(st.sampled_from(NOISE), max_size=2)))

    def _trail(self) -> str:
        return self._draw(st.sampled_from(("", " # b = 2", "\t")))

    def _value(self, depth: int, *, inline: bool = False) -> str:
        shape = self._draw(st.sampled_from(("number", "text", "other", "array", "table")))
        if shape == "text":
            texts = [text for text in TEXTS if not (inline and "\n" in text)]
            return self._draw(st.sampled_from(texts))
        if shape == "other":
            return self._draw(st.sampled_from(OTHERS))
        if shape == "array" and depth:
            return self._array(depth, inline=inline)
        if shape == "table" and depth:
            pairs = [
                f"{key} = {self._value(depth - 1, inline=True)}"
                for key in self._draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=3))
            ]
            return f"{{{', '.join(pairs)}}}"
        return str(next(self._numbers))

    def _array(self, depth: int, *, inline: bool) -> str:
        gap = "" if inline else self._draw(st.sampled_from(("", "\n", " # ] = [\n", "\n\n  ")))
        items = [
            f"{gap}{self._value(depth - 1, inline=inline)}"
            for _ in range(self._draw(st.integers(0, 3)))
        ]
        trailing = self._draw(st.booleans())
        comma = "," if items and trailing else ""
        return f"[{','.join(items)}{comma}{gap}]"


@st.composite
def documents(draw: st.DrawFn) -> str:
    return Writer(draw).document()


def valid(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def leaves(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from leaves(below, (*path, key))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from leaves(below, (*path, index))
    else:
        yield path, value


@given(documents())
def test_the_line_of_every_number(text: str) -> None:
    lines = text.split("\n")
    index = LineIndex(text)
    for path, number in leaves(tomllib.loads(text)):
        if isinstance(number, int) and number > 100_000:
            assert str(number) in lines[index.line(path) - 1]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("mqtt",), 4),
        (("mqtt", "missing"), 4),
        (("listeners",), 7),
        (("listeners", 0), 7),
        (("listeners", 0, "port"), 7),
        (("listeners", 1), 9),
        (("listeners", 1, "port"), 10),
        (("listeners", 1, "tls"), 11),
        (("listeners", 1, "tls", "key"), 12),
        (("log", "level"), 2),
        (("missing",), 1),
        ((), 1),
    ],
)
def test_lines_of_tables_and_missing_keys(path: KeyPath, line: int) -> None:
    text = """\
# a comment
log.level = "info"

[mqtt]
queue = 1

[[listeners]]
kind = "tcp"
[[listeners]]
port = 1
[listeners.tls]
key = "x"
"""
    assert LineIndex(text).line(path) == line


def test_the_own_header_of_a_table_is_its_line() -> None:
    index = LineIndex("[a.b]\nx = 1\n[a]\ny = 2\n")
    assert index.line(("a", "missing")) == 3
    assert index.line(("a", "b", "missing")) == 1
