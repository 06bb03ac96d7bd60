"""docs/reliability.md lists the judged promises and the faults."""

import re

from reliability.promises import PROMISES
from reliability.schedule import EXPLANATIONS
from support.processes.checkout import ROOT

PAGE = (ROOT / "docs" / "reliability.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    _, _, section = PAGE.partition(f"\n## {heading}\n")
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table is not None, heading
    return [
        [cell.strip() for cell in row.strip("|").split("|")] for row in table[0].split("\n")[2:-1]
    ]


def test_every_promise_is_listed_as_it_is_judged() -> None:
    listed = [[name, text, made_in] for name, text, made_in, _ in rows("Promises")]
    pages = {one.name: one.page.removeprefix("docs/") for one in PROMISES}
    assert listed == [
        [one.name, one.text, f"[{pages[one.name]}]({pages[one.name]})"] for one in PROMISES
    ]


def test_every_fault_is_listed() -> None:
    assert dict(rows("Faults")) == EXPLANATIONS


def test_the_number_of_promises_is_the_number_of_verdicts() -> None:
    block = re.search(r"^promise .*?^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert block is not None
    shown = [line.split()[0] for line in block[0].splitlines()[1:-1] if line]
    assert shown == [one.name for one in PROMISES]
