"""The table that compares a paper's numbers with ours: its rows, and their HTML.

A row tells whether the two numbers agree, and why not.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dovetail.pipeline.report.page import as_text

PAPER = (
    "R. Banno and Y. Watanabe, “Wildcard Topic Management using Bloom Filter in Distributed "
    "MQTT Brokers”"
)


NOT_RUN = "not in this run"


@dataclass(frozen=True)
class Comparison:
    """A row of the table: the paper's number, ours, and why they differ."""

    quantity: str
    paper: str
    ours: str
    difference: str
    reason: str
    agrees: bool | None
    """None: the row has no verdict."""


def render_comparison_table(comparisons: Iterable[Comparison], note: str) -> str:
    rows = "".join(
        f'<tr><th scope="row">{as_text(row.quantity)}</th>'
        f'<td data-label="Paper">{as_text(row.paper)}</td>'
        f'<td data-label="Ours">{as_text(row.ours)}</td>'
        f'<td data-label="Difference">{as_text(row.difference)}</td>'
        f"{_verdict(row)}"
        f'<td class="soft" data-label="Why">{as_text(row.reason)}</td></tr>'
        for row in comparisons
    )
    return (
        '<section id="check"><h2>What the paper prints, and what came out</h2>'
        '<div class="wide"><table class="check numbers"><thead><tr>'
        '<th scope="col">What</th><th scope="col">Paper</th><th scope="col">Ours</th>'
        '<th scope="col">Difference</th><th scope="col">Agrees</th><th scope="col">Why</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
        f'<p class="soft">{note}</p></section>\n'
    )


def _verdict(row: Comparison) -> str:
    if row.agrees is None:
        return f'<td class="verdict soft">{"not run" if row.ours == NOT_RUN else ""}</td>'
    kind, text = ("holds", "✓ agrees") if row.agrees else ("fails", "✗ differs")
    return f'<td class="verdict {kind}">{text}</td>'
