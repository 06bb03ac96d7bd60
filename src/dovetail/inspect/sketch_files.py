"""`dovetail sketch`: builds a sketch file from a list of filters, describes it and searches it.

So a user sees what a set of subscriptions costs before a cluster runs with it. This module reads
and writes files; `topics/sketches/` defines their content.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from dovetail.errors import ClientError, ConfigError, SketchFormatError
from dovetail.limits import TOPIC_BYTES_MAX
from dovetail.topics.kernels.lines import LINE_BITS
from dovetail.topics.limits import SKETCH_BYTES_MAX
from dovetail.topics.names import check_filter, check_name, split_shared
from dovetail.topics.sketches import (
    Sketch,
    build_sketch,
    looks_like_sketch,
    sketch_from_bytes,
    sketch_to_bytes,
)
from dovetail.topics.topic_column import TopicColumn

STANDARD_INPUT = "-"

_SNIFFED_BYTES = 4096
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def build(
    filters: str, out: Path, *, method: str, false_positive_rate: float, seed: int
) -> list[tuple[str, str]]:
    """Build a sketch of the filters in a file, one per line. Return its description."""
    checked = [_routed(text) for text in _checked_lines(filters, check_filter)]
    if not checked:
        raise ConfigError(f"{filters} has no filters")
    sketch = build_sketch(
        method, TopicColumn.of(checked), false_positive_rate=false_positive_rate, seed=seed
    )
    data = sketch_to_bytes(sketch)
    _write_whole(out, data)
    text_bytes = sum(map(len, checked))
    return [
        ("filters", f"{len(checked):,}, {text_bytes:,} bytes"),
        *describe(sketch),
        ("written", f"{out}, {len(data):,} bytes ({len(data) / text_bytes:.0%} of the filters)"),
    ]


def describe(sketch: Sketch) -> list[tuple[str, str]]:
    geometry = sketch.geometry
    layout = (
        f"{geometry.hashes} hashes" if geometry.hashes else f"{geometry.bits // LINE_BITS:,} lines"
    )
    return [
        ("method", geometry.method),
        ("elements", f"{sketch.elements:,}"),
        ("bits", f"{geometry.bits:,} ({layout}, seed {geometry.seed})"),
        ("fill", f"{sketch.fill:.1%}"),
        ("false positives", f"{sketch.false_positive_rate:.2g} per query"),
        ("version", f"{sketch.version:,}"),
    ]


def read(path: Path) -> Sketch:
    try:
        with path.open("rb") as file:
            # Do not ask for its size: a device or a pipe has none, and may have no end.
            data = file.read(_SNIFFED_BYTES)
            if looks_like_sketch(data):
                data += file.read(SKETCH_BYTES_MAX + 1 - len(data))
        return sketch_from_bytes(data)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except SketchFormatError as error:
        raise SketchFormatError(f"{path}: {error.message}") from None


def search(path: Path, topics: list[str]) -> Iterator[tuple[str, bool, int]]:
    """Yield each topic, whether a filter may match it, and how many queries that took."""
    sketch = read(path)
    for topic in topics:
        if topic == STANDARD_INPUT:
            names = _checked_lines(STANDARD_INPUT, check_name)
        else:
            names = iter([check_name(os.fsencode(topic))])
        for name in names:
            found, queries = sketch.search(name)
            yield name.decode(), found, queries


def _routed(topic_filter: bytes) -> bytes:
    """Return the filter that brokers put in sketches: of a shared subscription, its filter."""
    shared = split_shared(topic_filter.decode())
    return topic_filter if shared is None else shared.filter.encode()


def _checked_lines(source: str, check: Callable[[bytes], bytes]) -> Iterator[bytes]:
    if source == STANDARD_INPUT and sys.stdin is None:
        raise ConfigError("standard input is closed")
    try:
        with sys.stdin.buffer if source == STANDARD_INPUT else Path(source).open("rb") as lines:
            number = 0
            # A line is read up to its limit: a file without line ends is not read whole.
            while line := lines.readline(TOPIC_BYTES_MAX + 3):
                number += 1
                text = line.rstrip(b"\r\n")
                if number == 1:  # some editors write it; no topic begins so
                    text = text.removeprefix(_BYTE_ORDER_MARK)
                if not text:
                    continue
                try:
                    yield check(text)
                except ClientError as error:
                    raise ConfigError(f"{source}, line {number:,}: {error.message}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {source}: {error.strerror}") from None


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically: `path` never has half of a sketch."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise ConfigError(f"cannot write {path}: it is there, and not a file")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
