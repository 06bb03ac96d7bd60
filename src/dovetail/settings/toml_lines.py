"""Finds the line of each key and value in a TOML text.

`tomllib` does not report where it read a value. This scanner reads a text that `tomllib` has
accepted. So the text is valid, and the scanner only finds where keys, headers and values begin and
end. This module does not know the settings.
"""

import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterator

KeyPath = tuple[str | int, ...]
"""Keys of tables and indices of arrays, from the root: ("listeners", 0, "port")."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_KEY = re.compile(r'[A-Za-z0-9_-]+|"(?:\\.|[^"\\])*"|\'[^\']*\'')
_STRING = re.compile(
    # A text in three quotes may end with up to two more of them, which are part of it.
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)
_BARE_VALUE = re.compile(r"[^,\]}#\r\n]+")


class LineIndex:
    """The lines of a valid TOML text."""

    def __init__(self, text: str) -> None:
        self._lines = _TomlScanner(text).scan()

    def line(self, path: KeyPath) -> int:
        """Return the line of `path`; if it is missing, the line of the table that lacks it."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)


class _TomlScanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._line_starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self._position = 0
        self._lines: dict[KeyPath, int] = {}
        self._array_tables: dict[KeyPath, int] = {}  # the tables of each array so far

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        self._skip(_BLANK)
        while self._position < len(self._text):
            if self._text.startswith("[[", self._position):
                table = self._array_header()
            elif self._text.startswith("[", self._position):
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANK)
        return self._lines

    def _header(self) -> KeyPath:
        line = self._line()
        self._position += 1
        table: KeyPath = ()
        for key in self._keys():
            table = self._opened((*table, key))
            self._lines.setdefault(table, line)
        self._lines[table] = line  # the table's own header, even if a child came before
        self._position += 1
        return table

    def _array_header(self) -> KeyPath:
        line = self._line()
        self._position += 2
        *parents, last = self._keys()
        self._position += 2
        table: KeyPath = ()
        for key in parents:
            table = self._opened((*table, key))
            self._lines.setdefault(table, line)
        array = (*table, last)
        self._lines.setdefault(array, line)
        index = self._array_tables.get(array, 0)
        self._array_tables[array] = index + 1
        self._lines[*array, index] = line
        return (*array, index)

    def _opened(self, table: KeyPath) -> KeyPath:
        """Return the path of a header: below an array of tables, it means the last table."""
        opened = self._array_tables.get(table)
        return table if opened is None else (*table, opened - 1)

    def _pair(self, table: KeyPath) -> None:
        line = self._line()
        for key in self._keys():
            table = (*table, key)
            self._lines.setdefault(table, line)
        self._position += 1  # =
        self._skip(_SPACE)
        self._value(table)

    def _keys(self) -> list[str]:
        """Read a key and its dotted parts, up to the `=` or `]` after them."""
        keys = []
        while True:
            self._skip(_SPACE)
            keys.append(self._key())
            self._skip(_SPACE)
            if not self._text.startswith(".", self._position):
                return keys
            self._position += 1

    def _key(self) -> str:
        raw = self._skip(_KEY)
        if not raw.startswith(('"', "'")):
            return raw
        (key,) = tomllib.loads(f"{raw} = 0")
        return key

    def _value(self, path: KeyPath) -> None:
        opening = self._text[self._position]
        if opening == "[":
            for index, _ in enumerate(self._items("]")):
                self._lines[*path, index] = self._line()
                self._value((*path, index))
        elif opening == "{":
            for _ in self._items("}"):
                self._pair(path)
        else:
            self._skip(_STRING if opening in "\"'" else _BARE_VALUE)

    def _items(self, closing: str) -> Iterator[None]:
        """Stop before each item in turn, and at last after the closing bracket."""
        self._position += 1
        self._skip(_BLANK)
        while not self._text.startswith(closing, self._position):
            yield
            self._skip(_BLANK)
            if self._text.startswith(",", self._position):
                self._position += 1
                self._skip(_BLANK)
        self._position += 1

    def _skip(self, token: re.Pattern[str]) -> str:
        found = token.match(self._text, self._position)
        if found is None:
            raise AssertionError(f"no TOML at offset {self._position}: {token.pattern}")
        self._position = found.end()
        return found.group()

    def _line(self) -> int:
        return bisect_right(self._line_starts, self._position)
