"""The report of a wildcard run: one HTML page that needs nothing else.

Text in, text out. The page carries its styles, follows the reader's theme, works without
scripts, and names nothing of the machine that made it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

from dovetail.pipeline.charts import Series, legend_key, line_chart, number
from dovetail.pipeline.experiments.comparison import (
    METHOD_NAMES,
    Average,
    Averages,
    Comparison,
    scientific,
    with_error,
)
from dovetail.pipeline.experiments.wildcard import (
    FALSE_POSITIVE_RATE,
    FIGURES,
    PANELS,
    Figure,
    Panel,
)

TITLE = "The wildcard experiments, recomputed"
PAPER = (
    "R. Banno and Y. Watanabe, “Wildcard Topic Management using Bloom Filter in Distributed "
    "MQTT Brokers”"
)

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fbfbf9; --card: #ffffff; --text: #1d2126; --soft: #5b6470; --rule: #dfe2e6;
  --good: #1a7f4b; --bad: #b3261e; --accent: #0b62c4;
  --series-1: #8a8f98; --series-2: #c2620a; --series-3: #0b62c4; --series-4: #11803f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --card: #1c2026; --text: #e7eaee; --soft: #a0a9b4; --rule: #343a43;
    --good: #5fd38d; --bad: #ff8a80; --accent: #7db7ff;
    --series-1: #98a0ab; --series-2: #f2a154; --series-3: #7db7ff; --series-4: #5fd38d;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
}
main { max-width: 68rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: clamp(1.6rem, 5vw, 2.2rem); line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.35rem; margin: 3rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0 0 .25rem; }
p, li { max-width: 46rem; }
.lead { font-size: 1.1rem; }
.soft { color: var(--soft); }
.numbers { font-variant-numeric: tabular-nums; }
dl.run { display: grid; grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr));
  gap: .75rem 1.5rem; margin: 1.5rem 0 0; padding: 1rem 1.25rem; background: var(--card);
  border: 1px solid var(--rule); border-radius: .6rem; }
dl.run dt { font-size: .8rem; color: var(--soft); }
dl.run dd { margin: 0; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
caption { text-align: left; }
th, td { text-align: left; vertical-align: top; padding: .5rem .75rem .5rem 0;
  border-bottom: 1px solid var(--rule); }
thead th { font-size: .8rem; font-weight: 600; color: var(--soft); white-space: nowrap; }
tbody th { font-weight: 500; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.check tbody th { min-width: 12rem; }
.check [data-label="Paper"], .check [data-label="Ours"] { min-width: 8rem; }
.verdict { white-space: nowrap; font-weight: 600; }
.holds { color: var(--good); } .fails { color: var(--bad); }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; list-style: none; padding: 0;
  margin: .75rem 0 1rem; font-size: .92rem; }
.legend li { display: flex; align-items: center; gap: .5rem; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr));
  gap: 1.25rem; }
.panel { background: var(--card); border: 1px solid var(--rule); border-radius: .6rem;
  padding: 1rem 1rem .75rem; margin: 0; min-width: 0; }
.chart { display: block; width: 100%; height: auto; font: 13px system-ui, sans-serif; }
.key { width: 40px; height: 20px; flex: none; }
.grid { stroke: var(--rule); } .axis { stroke: var(--soft); }
.tick, .label { fill: var(--soft); }
.line { fill: none; stroke: var(--colour); stroke-width: 2; }
.mark { fill: var(--card); stroke: var(--colour); stroke-width: 2; }
.mark .dot { fill: var(--colour); stroke: var(--colour); }
.mark:hover { stroke-width: 4; }
.series-1 { --colour: var(--series-1); stroke-dasharray: none; }
.series-2 { --colour: var(--series-2); }
.series-3 { --colour: var(--series-3); }
.series-4 { --colour: var(--series-4); }
.line.series-1 { stroke-dasharray: 2 4; } .line.series-2 { stroke-dasharray: 8 4; }
.line.series-3 { stroke-dasharray: 12 3 2 3; }
details { margin-top: .5rem; font-size: .92rem; }
summary { cursor: pointer; color: var(--accent); }
code { font-size: .92em; }
@media (max-width: 44rem) {
  main { padding-top: 1.5rem; }
  dl.run { grid-template-columns: 1fr 1fr; }
  .chart { font-size: 16px; }  /* of the drawing, which is narrower here */
  .check thead { position: absolute; clip-path: inset(50%); }
  .check tr { display: block; padding: .75rem 0; border-bottom: 1px solid var(--rule); }
  .check th, .check td { display: block; border: 0; padding: .1rem 0; text-align: left; }
  .check td::before { content: attr(data-label) ": "; color: var(--soft); }
  .check td.verdict::before { content: ""; }
}
@media print { .panel { break-inside: avoid; } }
"""


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
class Run:
    """What was run, in the words of the page."""

    seed: int
    trials: int
    figures: Sequence[int]
    finished: datetime
    versions: Mapping[str, str]


def render(run: Run, measured: Averages, comparisons: Sequence[Comparison]) -> str:
    """The whole page."""
    figures = "".join(_figure(FIGURES[number_], measured) for number_ in run.figures)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{TITLE}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"{_head(run, measured)}{_check_table(comparisons)}{READING}{figures}{DIFFERENCES}"
        "</main>\n</body>\n</html>\n"
    )


def _head(run: Run, measured: Averages) -> str:
    facts = {
        "Figures": ", ".join(map(str, run.figures)),
        "Trials a point": f"{run.trials:,}",
        "Seed": str(run.seed),
        "Finished": run.finished.strftime("%Y-%m-%d %H:%M UTC"),
        **run.versions,
    }
    entries = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in facts.items()
    )
    return (
        f"<header><h1>{TITLE}</h1>"
        f'<p class="lead">{_headline(measured)}</p>'
        f'<p class="soft">The simulation of {PAPER}, section V: how many queries a broker puts to '
        "another broker&rsquo;s sketch of its subscriptions, to learn whether a published topic "
        "has a subscriber there.</p>"
        f'<dl class="run">{entries}</dl></header>\n'
    )


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


def _check_table(comparisons: Iterable[Comparison]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{_text(row.what)}</th>'
        f'<td data-label="Paper">{_text(row.paper)}</td>'
        f'<td data-label="Ours">{_text(row.ours)}</td>'
        f'<td data-label="Difference">{_text(row.difference)}</td>'
        f"{_verdict(row.holds)}"
        f'<td class="soft" data-label="Why">{_text(row.why)}</td></tr>'
        for row in comparisons
    )
    return (
        '<section id="check"><h2>What the paper prints, and what came out</h2>'
        '<div class="wide"><table class="check numbers"><thead><tr>'
        '<th scope="col">What</th><th scope="col">Paper</th><th scope="col">Ours</th>'
        '<th scope="col">Difference</th><th scope="col">Agrees</th><th scope="col">Why</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
        '<p class="soft">± is the standard error of the mean over the trials. A mean agrees when '
        "it lies within three standard errors of a difference of two such means, the "
        "paper&rsquo;s being over 10 trials; one search deviates by 1.3 queries (prefix) and "
        "16.5 (BFP) from trial to trial.</p></section>\n"
    )


def _text(plain: str) -> str:
    """Escaped, with the signs that a keyboard lacks."""
    text = escape(plain).replace("&#x27;#&#x27;", "<code>#</code>").replace("&#x27;", "&rsquo;")
    return f"&minus;{text[1:]}" if text.startswith("-") else text


def _verdict(holds: bool | None) -> str:
    if holds is None:
        return '<td class="verdict soft">not run</td>'
    kind, text = ("holds", "✓ agrees") if holds else ("fails", "✗ differs")
    return f'<td class="verdict {kind}">{text}</td>'


def _figure(figure: Figure, measured: Averages) -> str:
    keys = "".join(
        f"<li>{legend_key(index)}{_text(name)}</li>"
        for index, name in enumerate(METHOD_NAMES.values())
    )
    panels = "".join(_panel(figure, panel, measured) for panel in PANELS)
    return (
        f'<section id="figure-{figure.number}"><h2>Figure {figure.number}: '
        f'{escape(figure.title)}</h2><ul class="legend">{keys}</ul>'
        f'<div class="panels">{panels}</div></section>\n'
    )


def _panel(figure: Figure, panel: Panel, measured: Averages) -> str:
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


def _values(panel: Panel, columns: Mapping[str, Sequence[Average]]) -> str:
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
