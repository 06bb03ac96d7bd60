"""docs/conformance.md is complete and correct: statements, files, functions, tests and tags."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "dovetail"
TESTS = ROOT / "tests"
DOCUMENT = ROOT / "docs" / "conformance.md"

# The number of statements in each section, from appendices B of the standards. Those of 2.2.1 in
# 5.0 begin with 2.
MQTT_5 = {
    "1.5.4": 3, "1.5.5": 1, "1.5.7": 1,
    "2.1.3": 1, "2.2.1": 6, "2.2.2": 1,
    "3.1.0": 2, "3.1.2": 30, "3.1.3": 12, "3.1.4": 6, "3.2.0": 2, "3.2.2": 22,
    "3.3.1": 13, "3.3.2": 20, "3.3.4": 10,
    "3.4.2": 3, "3.5.2": 3, "3.6.1": 1, "3.6.2": 3, "3.7.2": 3,
    "3.8.1": 1, "3.8.3": 5, "3.8.4": 8, "3.9.2": 2, "3.9.3": 2,
    "3.10.1": 1, "3.10.3": 2, "3.10.4": 6, "3.11.2": 2, "3.11.3": 2, "3.12.4": 1,
    "3.14.0": 1, "3.14.1": 1, "3.14.2": 4, "3.14.4": 3, "3.15.1": 1, "3.15.2": 3,
    "4.1.0": 2, "4.2.0": 1, "4.3.1": 1, "4.3.2": 5, "4.3.3": 13, "4.4.0": 2, "4.5.0": 2, "4.6.0": 6,
    "4.7.0": 1, "4.7.1": 2, "4.7.2": 1, "4.7.3": 4, "4.8.2": 6, "4.9.0": 3,
    "4.12.0": 7, "4.12.1": 2, "4.13.1": 1, "4.13.2": 1,
    "6.0.0": 4,
}  # fmt: skip
MQTT_3_1_1 = {
    "1.5.3": 3, "2.2.2": 2, "2.3.1": 7,
    "3.1.0": 2, "3.1.2": 24, "3.1.3": 11, "3.1.4": 5, "3.2.0": 1, "3.2.2": 6,
    "3.3.1": 12, "3.3.2": 3, "3.3.4": 1, "3.3.5": 2, "3.6.1": 1,
    "3.8.1": 1, "3.8.3": 4, "3.8.4": 6, "3.9.3": 2, "3.10.1": 1, "3.10.3": 2, "3.10.4": 6,
    "3.12.4": 1, "3.14.1": 1, "3.14.4": 3,
    "4.1.0": 2, "4.3.1": 1, "4.3.2": 2, "4.3.3": 2, "4.4.0": 1, "4.5.0": 2, "4.6.0": 6,
    "4.7.1": 3, "4.7.2": 1, "4.7.3": 4, "4.8.0": 2,
    "6.0.0": 4, "7.0.0": 2, "7.1.1": 1, "7.1.2": 1,
}  # fmt: skip

_CLAUSE = re.compile(r"MQTT3?-\d+\.\d+\.\d+-\d+")
_TAG = re.compile(r"\[(MQTT3?-\d[^\]\s]*)\]")
_PLACE = re.compile(r"`([\w/]+\.py):(\w+)`")
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


def statements() -> set[str]:
    def of(prefix: str, counts: dict[str, int]) -> set[str]:
        return {
            f"{prefix}-{section}-{number}"
            for section, count in counts.items()
            for number in range(1, count + 1)
        }

    return (of("MQTT", MQTT_5) - {"MQTT-2.2.1-1"}) | of("MQTT3", MQTT_3_1_1)


def rows() -> Iterator[list[str]]:
    for line in DOCUMENT.read_text().splitlines():
        if line.startswith("| MQTT"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def listed() -> Iterator[str]:
    """Yield the statements of the tables, also those that equal one of 5.0."""
    for cells in rows():
        if len(cells) == 6:
            yield from filter(None, cells[::2])
        else:
            yield cells[0]


@cache
def names_in(file: Path) -> frozenset[str]:
    """Return functions, classes and constants of a module, also those within classes."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(), file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return frozenset(found)


def test_the_standards_have_so_many_statements() -> None:
    counts = Counter(clause.partition("-")[0] for clause in statements())
    assert counts == {"MQTT": 251, "MQTT3": 141}


def test_every_statement_has_its_place() -> None:
    counts = Counter(listed())
    assert {clause for clause, count in counts.items() if count > 1} == set()
    assert set(counts) ^ statements() == set()


def test_what_is_the_same_is_in_the_table_of_5_0() -> None:
    same = [cells for cells in rows() if len(cells) == 6]
    assert same
    for cells in same:
        pairs = list(zip(cells[::2], cells[1::2], strict=True))
        assert all(bool(old) == bool(new) for old, new in pairs)
        assert {new for _, new in pairs if new} <= statements()


def test_every_place_exists() -> None:
    missing = []
    for cells in rows():
        if len(cells) != 4:
            continue
        places = _PLACE.findall(cells[2])
        assert ", ".join(f"`{path}:{name}`" for path, name in places) == cells[2], cells[0]
        for path, name in places:
            file = SOURCE / path
            if not file.is_file() or name not in names_in(file):
                missing.append((cells[0], path, name))
    assert missing == []


def test_every_test_exists() -> None:
    missing = []
    for cells in rows():
        if len(cells) != 4:
            continue
        tests = _TEST.findall(cells[3])
        assert ", ".join(f"`{path}::{name}`" for path, name in tests) == cells[3], cells[0]
        for path, name in tests:
            file = TESTS / path
            is_test = name.startswith(("test_", "Test"))
            if not is_test or not file.is_file() or name not in names_in(file):
                missing.append((cells[0], path, name))
    assert missing == []


def test_every_tag_is_a_statement() -> None:
    wrong = [
        (str(file.relative_to(ROOT)), tag)
        for folder in (SOURCE, TESTS)
        for file in folder.rglob("*.py")
        if file != Path(__file__)
        for tag in _TAG.findall(file.read_text())
        if not _CLAUSE.fullmatch(tag) or tag not in statements()
    ]
    assert wrong == []


def test_tags_of_rows_are_near_their_places() -> None:
    """A tagged statement has a tag in a file that its row names."""
    tagged: dict[str, set[str]] = {}
    for file in SOURCE.rglob("*.py"):
        for tag in _TAG.findall(file.read_text()):
            tagged.setdefault(tag, set()).add(str(file.relative_to(SOURCE)))
    astray = {
        cells[0]: tagged[cells[0]]
        for cells in rows()
        if len(cells) == 4
        and cells[0] in tagged
        and tagged[cells[0]].isdisjoint(path for path, _ in _PLACE.findall(cells[2]))
    }
    assert astray == {}
