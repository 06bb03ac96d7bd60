"""The report of a wildcard run: the paper's numbers beside ours, and a chart for each panel."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

from dovetail.papers.comparison_table import PAPER, Comparison, render_comparison_table
from dovetail.papers.wildcard.comparison import (
    METHOD_NAMES,
    Average,
    Averages,
    scientific,
    with_error,
)
from dovetail.papers.wildcard.simulation import (
    FALSE_POSITIVE_RATE,
    FIGURES,
    PANELS,
    WildcardFigure,
    WildcardPanel,
)
from dovetail.pipeline.report.line_chart import Series, legend_key, line_chart, number
from dovetail.pipeline.report.page import as_text, head, page

TITLE = "The wildcard experiments, recomputed"
SPREAD = (
    "± is the standard error of the mean over the trials. A mean agrees when "
    "it lies within three standard errors of a difference of two such means, the "
    "paper&rsquo;s being over 10 trials; one search deviates by 1.3 queries (prefix) and "
    "16.5 (BFP) from trial to trial."
)


READING = """\
<section><h2>How to read the charts</h2>
<ul>
<li><b>BF</b> asks a Bloom filter for every way the topic can be written with wildcards:
2<sup>n+1</sup> &minus; 1 queries at n levels when nothing matches.</li>
<li><b>BFP</b> asks only for the patterns that some filter has, and for the topic itself.</li>
<li><b>Prefix</b>, the paper&rsquo;s method, walks down the prefixes of the filters like a
tree.</li>
<li><b>Lines</b>, Dovetail&rsquo;s own, walks the same tree, with all that is asked of one node in
one cache line.</li>
</ul>
<p><b>One query is not the same for all.</b> For BF, BFP and prefix it is one question to a Bloom
filter, which reads up to k bits, each in another place of the memory. For lines it is one cache
line of 64 bytes, read once: never more than one of theirs costs.</p>
<p>Points are means over the trials; hover over one for its value and standard error. Where values
lie far apart the axis is logarithmic. Unless a panel sweeps it: 6,000 filters, 6 levels, half of
the filters with wildcards, wildcards from level 0 on.</p>
</section>
"""

DIFFERENCES = f"""\
<section><h2>Where this differs from the paper, and why</h2>
<ul>
<li><b>Figures 5 and 6 follow the same law.</b> A filter with a literal level in it matches a
published topic only if both drew the same random string, which happens once in 26<sup>10</sup>
tries. So without wildcard-only filters nothing matches anyway, and excluding what matches changes
nothing: the two figures differ by their draws alone. They are drawn independently here.</li>
<li><b>The search backtracks.</b> Algorithm 1 as printed returns the answer of the first branch it
enters and never tries the next: with <code>+/x</code> and <code>a/b</code> subscribed, a
publication to <code>a/b</code> is missed. At 10 levels it would take 20 to 21 queries instead of
29. The paper&rsquo;s 29.7 agrees with a search that backtracks.</li>
<li><b>The search knows that <code>a/#</code> matches <code>a</code></b>, as MQTT has it. In these
experiments no filter is deeper than the topic, so no count changes by it.</li>
<li><b>False positives are kept out</b> by sketches sized for a rate of
{scientific(FALSE_POSITIVE_RATE)} a query. With 0.001, the paper&rsquo;s example, most searches of
more than 1,000 queries would end early in one: BFP would show about 790 where the paper has
1,570.0. The paper does not give the rate of its simulation. The sizes in the table of results
follow from this rate, and are no advice for a broker.</li>
<li><b>The ticks of the axes</b> are ours: the paper&rsquo;s text names only 10 levels in panel
(b), 0 in panel (c), and 1 or more in panel (d).</li>
<li><b>Random strings</b> are of the letters a to z; the paper gives only their length, 10.</li>
</ul>
</section>
"""


@dataclass(frozen=True)
class WildcardRun:
    """The parameters of a run, for the head of the page."""

    seed: int
    trials: int
    figures: Sequence[int]
    finished: datetime
    versions: Mapping[str, str]


def render(run: WildcardRun, measured: Averages, comparisons: Sequence[Comparison]) -> str:
    """Return the page."""
    figures = "".join(_figure(FIGURES[number_], measured) for number_ in run.figures)
    return page(
        TITLE,
        _head(run, measured)
        + render_comparison_table(comparisons, SPREAD)
        + READING
        + figures
        + DIFFERENCES,
    )


def _head(run: WildcardRun, measured: Averages) -> str:
    facts = {
        "Figures": ", ".join(map(str, run.figures)),
        "Trials a point": f"{run.trials:,}",
        "Seed": str(run.seed),
        "Finished": run.finished.strftime("%Y-%m-%d %H:%M UTC"),
        **run.versions,
    }
    about = (
        f"The simulation of {PAPER}, section V: how many queries a broker puts to "
        "another broker&rsquo;s sketch of its subscriptions, to learn whether a published topic "
        "has a subscriber there."
    )
    return head(TITLE, _headline(measured), about, facts)


def _headline(measured: Averages) -> str:
    at = {method: measured.get((6, "b", 10.0, method)) for method in METHOD_NAMES}
    bfp, prefix, lines = at["bfp"], at["prefix"], at["lines"]
    if bfp is None or prefix is None or lines is None:
        return "Queries per search of four methods, over the paper&rsquo;s parameters."
    return (
        "At 10 levels, when nothing matches, one search takes "
        f"{bfp.queries:,.0f} queries with BFP, {prefix.queries:,.1f} with the paper&rsquo;s prefix "
        f"method, and {lines.queries:,.1f} cache lines with Dovetail&rsquo;s."
    )


def _figure(figure: WildcardFigure, measured: Averages) -> str:
    keys = "".join(
        f"<li>{legend_key(index)}{as_text(name)}</li>"
        for index, name in enumerate(METHOD_NAMES.values())
    )
    panels = "".join(_panel(figure, panel, measured) for panel in PANELS)
    return (
        f'<section id="figure-{figure.number}"><h2>Figure {figure.number}: '
        f'{escape(figure.title)}</h2><ul class="legend">{keys}</ul>'
        f'<div class="panels">{panels}</div></section>\n'
    )


def _panel(figure: WildcardFigure, panel: WildcardPanel, measured: Averages) -> str:
    name = f"Figure {figure.number}({panel.letter})"
    columns = {
        method: [measured[figure.number, panel.letter, value, method] for value in panel.values]
        for method in METHOD_NAMES
    }
    lines = [
        Series(
            METHOD_NAMES[method],
            [point.queries for point in points],
            [
                f"{METHOD_NAMES[method]}, {panel.parameter} = {number(value)}: {with_error(point)}"
                for value, point in zip(panel.values, points, strict=True)
            ],
        )
        for method, points in columns.items()
    ]
    chart = line_chart(
        f"{name}: mean queries per search against {panel.label} ({panel.parameter}), four methods",
        f"{panel.label} ({panel.parameter})",
        "queries (lines: cache lines) per search",
        panel.values,
        lines,
    )
    return (
        f'<figure class="panel" id="figure-{figure.number}{panel.letter}">'
        f"<figcaption><h3>{name}: {escape(panel.label)}</h3></figcaption>{chart}"
        f"<details><summary>The values</summary>{_values(panel, columns)}</details></figure>"
    )


def _values(panel: WildcardPanel, columns: Mapping[str, Sequence[Average]]) -> str:
    heads = "".join(
        f'<th scope="col" class="number">{escape(METHOD_NAMES[method].split(" ")[0])}</th>'
        for method in columns
    )
    rows = "".join(
        f'<tr><th scope="row">{number(value)}</th>'
        + "".join(
            f'<td class="number">{with_error(points[index])}</td>' for points in columns.values()
        )
        + "</tr>"
        for index, value in enumerate(panel.values)
    )
    return (
        f'<div class="wide"><table><thead><tr><th scope="col">{panel.parameter}</th>{heads}</tr>'
        f"</thead><tbody>{rows}</tbody></table></div>"
    )
