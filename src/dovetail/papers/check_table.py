"""The table that compares a paper's numbers with ours, as HTML. Text out.

Each row is a `Comparison`; the table says whether the two agree, and why not.
"""

from collections.abc import Iterable

from dovetail.papers.wildcard.comparison import NOT_RUN, Comparison
from dovetail.pipeline.report.page import as_text

PAPER = (
    "R. Banno and Y. Watanabe, “Wildcard Topic Management using Bloom Filter in Distributed "
    "MQTT Brokers”"
)


def check_table(comparisons: Iterable[Comparison], note: str) -> str:
    rows = "".join(
        f'<tr><th scope="row">{as_text(row.what)}</th>'
        f'<td data-label="Paper">{as_text(row.paper)}</td>'
        f'<td data-label="Ours">{as_text(row.ours)}</td>'
        f'<td data-label="Difference">{as_text(row.difference)}</td>'
        f"{_verdict(row)}"
        f'<td class="soft" data-label="Why">{as_text(row.why)}</td></tr>'
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
    if row.holds is None:
        return f'<td class="verdict soft">{"not run" if row.ours == NOT_RUN else ""}</td>'
    kind, text = ("holds", "✓ agrees") if row.holds else ("fails", "✗ differs")
    return f'<td class="verdict {kind}">{text}</td>'
