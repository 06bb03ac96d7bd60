"""The report of a BlueDove run: the paper's numbers beside ours, and the charts of each figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

from dovetail.papers.bluedove.bends import bends
from dovetail.papers.bluedove.beyond import COUNTED_MAX
from dovetail.papers.bluedove.configuration import (
    BOXES,
    EVENT,
    NARROW,
    RATE,
    SLOWDOWN,
    Configuration,
    Measured,
)
from dovetail.papers.bluedove.figure_parts import Check, Figure, Line, Panel
from dovetail.papers.bluedove.panel_charts import bars, courses, curves, decades, style_of
from dovetail.papers.bluedove.plane_numbers import TOLERANCE
from dovetail.papers.bluedove.scale import MATCHER_POINTS, SAMPLE, SIMULATED_MAX
from dovetail.papers.check_table import check_table
from dovetail.papers.wildcard.comparison import Comparison
from dovetail.pipeline.report.line_chart import Series, legend_key
from dovetail.pipeline.report.page import as_text, head, page

TITLE = "BlueDove&rsquo;s evaluation, recomputed"
PAPER = (
    "M. Li, F. Ye, M. Kim, H. Chen, H. Lei, &ldquo;A Scalable and Elastic Publish/Subscribe "
    "Service&rdquo;, section IV"
)
NOTE = (
    f"A number agrees when ours is within {TOLERANCE * 100:.0f} % of the paper&rsquo;s with boxes "
    "of one of the two widths; the difference is that of the nearer one."
)

THOUSANDS = (RATE, BOXES)
"""Measures whose charts are in thousands."""

EVENTS = {
    "9": "a matcher is started",
    "10": "a matcher falls silent",
    "crash-100": "a matcher falls silent",
}
"""What the dashed lines of a figure are."""

READING = f"""\
<section><h2>How to read the charts</h2>
<p>Candidates, segments, forwarding policies and reports of load are the code that serves clients;
time is simulated. A matcher looks at each box that it holds along a dimension, as the
paper&rsquo;s does: Dovetail&rsquo;s own index does not, and is far faster, but then there is little
to choose between the systems that are compared here.</p>
<ul>
<li><b>Boxes 250 wide</b> are what the paper&rsquo;s text describes.</li>
<li><b>Boxes in one segment</b> are {NARROW:g} wide: nearly each has one copy a dimension. The
paper&rsquo;s results fit that kind, whatever its text says.</li>
</ul>
<p>In figures 9 and 10 and for the overhead the whole plane runs: gossip, joins, feeds, questions
that are put again. Dashed lines are where a matcher is started, or falls silent.</p>
</section>
"""

TRYING = (
    "What might explain where the paper&rsquo;s numbers and ours differ. Each row changes one "
    "thing, and has how many times the others&rsquo; rate matchers could take at best: that is "
    "computed, and queues do not quite allow it. The paper&rsquo;s numbers are in brackets. A "
    "cost for a message brings P2P and the spread of boxes to the paper&rsquo;s numbers, and full "
    "replication away from them; no row has all of them."
)

SCALING = f"""\
<p>Not all of this can be run in full. Rates are simulated to {SIMULATED_MAX} matchers, with two
brokers, and time stretched so that a matcher gets some {MATCHER_POINTS:.0f} messages a second at
its limit; for more matchers there is what they could take at best, which is computed. Of more than
{SAMPLE:,} boxes that many are drawn for rates, and each stands for as many and takes as much
longer; what is held is counted with all up to {COUNTED_MAX / 1e6:.0f} million, and with a sample
above. Gossip is simulated to 200 matchers and computed beyond. Dovetail&rsquo;s own index is a
formula, of times that were measured with up to 40,000 boxes. Borders of segments are even.</p>
"""

DIFFERENCES = f"""\
<section><h2>Where this differs from the paper, and why</h2>
<ul>
<li><b>The speed of a matcher is fitted</b>, for each width of boxes, so that 20 matchers saturate
near the paper&rsquo;s 114,000 messages a second. Everything else follows from it.</li>
<li><b>Matching takes {SLOWDOWN} times as long, and rates are as much lower.</b> Charts show rates
times {SLOWDOWN}. Response times below saturation, which are matching times, are as much longer than
the paper&rsquo;s machines would need.</li>
<li><b>A rate is too high</b> if somewhere the time that questions wait grows through all of a trial
of 20 seconds, by more than 3 % of the time that passes. The paper watched for five minutes.</li>
<li><b>Messages come at even times</b>, at points that fill the space evenly: at a hundredth of the
rate, chance would shake queues ten times as much.</li>
<li><b>P2P holds a box at each matcher whose segment it overlaps</b>, and so finds every match. The
paper says that only one matcher stores a box: a box that crosses a border would be missed.</li>
<li><b>Figures 9 and 10 are shorter</b>: the rate rises every 15 seconds, and a matcher falls silent
every 30, where the paper waited for five minutes. There are 1,000 boxes, each of which takes as
long as 40 would. In figure 10 and for the overhead the limits of time are the service&rsquo;s own,
so matching is quicker there and matchers are lightly loaded.</li>
<li><b>The settings of figures 9 and 10 were chosen among others</b>. Where matchers are added only
at 90 % and not at 80 %, work has piled up by then and response times stay above a second; with
matchers half busy at 40 ms a message, questions outlast the limit without any crash.</li>
<li><b>A matcher that crashes falls silent</b>, as a machine that loses power: its connections do
not break. Brokers ask the next candidate after 0.3 seconds, and pass the silent one over.</li>
</ul>
</section>
"""


@dataclass(frozen=True)
class BlueDoveRun:
    """What was run, in the words of the page."""

    seed: int
    trials: int
    figures: Sequence[Figure]
    finished: datetime
    versions: Mapping[str, str]


def render_bluedove(run: BlueDoveRun, measured: Measured, comparisons: Sequence[Comparison]) -> str:
    """The whole page."""
    facts = {
        "Figures": ", ".join(figure.name for figure in run.figures),
        "Trials a configuration": str(run.trials),
        "Seed": str(run.seed),
        "Finished": run.finished.strftime("%Y-%m-%d %H:%M UTC"),
        **run.versions,
    }
    about = f"{PAPER}, on Dovetail&rsquo;s own code under a seeded simulator."
    return page(
        TITLE,
        head(TITLE, _headline(comparisons), about, facts)
        + check_table(comparisons, NOTE)
        + READING
        + "".join(_figure(figure, measured) for figure in run.figures)
        + _bends(measured)
        + DIFFERENCES,
    )


def _headline(comparisons: Sequence[Comparison]) -> str:
    known = [row for row in comparisons if row.holds is not None]
    agree = sum(bool(row.holds) for row in known)
    return f"Of {len(known)} numbers of the paper that were run, {agree} come out as it has them."


def _figure(figure: Figure, measured: Measured) -> str:
    if figure.along == "names":
        return _tables(figure, measured)
    panels = "".join(_panel(figure, panel, measured) for panel in figure.panels)
    legend = ""
    if figure.along not in ("bars", "log") and len(figure.panels[0].lines) > 1:
        legend = _legend(figure.panels[0])
    scaling = SCALING if figure.along == "log" else ""
    return (
        f'<section id="figure-{figure.name}"><h2>{_printed(figure)}</h2>{scaling}{legend}'
        f'<div class="panels">{panels}</div>{_checks(figure.checks, measured)}</section>\n'
    )


def _tables(figure: Figure, measured: Measured) -> str:
    """A table for each panel, with a column for each line."""
    found = ""
    for panel in figure.panels:
        columns = [dict(_values(figure, line, measured)) for line in panel.lines]
        heads = "".join(
            f'<th scope="col" class="number">{escape(line.name)}</th>' for line in panel.lines
        )
        rows = "".join(
            f'<tr><th scope="row">{escape(name)}</th>'
            + "".join(f'<td class="number">{as_text(_text(one[place]))}</td>' for one in columns)
            + "</tr>"
            for place, name in enumerate(figure.names)
        )
        found += (
            f'<h3 class="after">{as_text(panel.title)}</h3><div class="wide">'
            '<table class="values"><thead><tr>'
            f'<th scope="col">{escape(figure.x_label)}</th>{heads}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div>"
        )
    return (
        f'<section id="figure-{figure.name}"><h2>{_printed(figure)}</h2>'
        f"<p>{TRYING}</p>{found}</section>\n"
    )


def _legend(panel: Panel) -> str:
    keys = "".join(
        f"<li>{legend_key(style_of(index))}{escape(line.name)}</li>"
        for index, line in enumerate(panel.lines)
    )
    return f'<ul class="legend">{keys}</ul>'


def _printed(figure: Figure) -> str:
    """6a as the paper writes it: Figure 6(a)."""
    name, title = figure.name, escape(figure.title)
    if name in ("overhead", "reasons"):
        return title
    if not name[0].isdigit():
        return f"Beyond the paper: {title}"
    return (
        f"Figure {name[:-1]}({name[-1]}): {title}"
        if name[-1] in "abc"
        else f"Figure {name}: {title}"
    )


def _checks(checks: Sequence[Check], measured: Measured) -> str:
    """What is scaled, beside the same in full."""
    if not checks:
        return ""
    rows = ""
    for check in checks:
        whole, scaled = (
            _known(measured, one, check.measure) for one in (check.whole, check.scaled)
        )
        rows += (
            f'<tr><th scope="row">{as_text(check.what)}</th><td class="number">{_text(whole)}</td>'
            f'<td class="number">{_text(scaled)}</td>'
            f'<td class="number">{as_text(f"{(scaled / whole - 1) * 100:+.1f} %")}</td></tr>'
        )
    return (
        '<h3 class="after">How far the scaling can be trusted</h3><div class="wide">'
        '<table class="values"><thead><tr><th scope="col">Both were run</th>'
        '<th scope="col" class="number">in full</th><th scope="col" class="number">scaled</th>'
        '<th scope="col" class="number">difference</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _bends(measured: Measured) -> str:
    """Where the design ceases to gain, in words."""
    found = bends(measured)
    if not found:
        return ""
    items = "".join(f"<li><b>{as_text(bend.what)}</b> {as_text(bend.found)}</li>" for bend in found)
    return f'<section id="bends"><h2>Where the design bends</h2><ul>{items}</ul></section>\n'


def _panel(figure: Figure, panel: Panel, measured: Measured) -> str:
    title = f"{figure.title}: {panel.title}"
    found = [_values(figure, line, measured) for line in panel.lines]
    series = [
        Series(
            line.name,
            [value for _, value in values],
            [f"{line.name}, {x:g}: {_text(value)}" for x, value in values],
        )
        for line, values in zip(panel.lines, found, strict=True)
    ]
    where = [x for x, _ in max(found, key=len)]
    table = _table(figure, where, series)
    unit = 1_000 if figure.measure in THOUSANDS and figure.along != "log" else panel.unit
    series = [Series(one.name, [value / unit for value in one.values], one.notes) for one in series]
    y_label = panel.y_label or figure.y_label
    if figure.along == "bars":
        chart = bars(title, y_label, series)
    elif figure.along == "time":
        happened = [at for at, _ in measured.over(panel.lines[0].points[0][1], EVENT)]
        events = [(at, f"{EVENTS[figure.name]} at {at:g} s") for at in happened]
        chart = courses(title, figure.x_label, y_label, where, series, events)
    elif figure.along == "log":
        chart = decades(title, figure.x_label, y_label, where, series)
        if len(panel.lines) > 1:
            chart = _legend(panel) + chart
    else:
        chart = curves(title, figure.x_label, y_label, where, series)
    return (
        f'<figure class="panel"><figcaption><h3>{as_text(panel.title)}</h3></figcaption>{chart}'
        f"{table}</figure>"
    )


def _values(figure: Figure, line: Line, measured: Measured) -> list[tuple[float, float]]:
    measure = line.measure or figure.measure
    if line.is_own or figure.along in ("time", "matchers"):
        return measured.over(line.points[0][1], measure)
    return [(x, _known(measured, one, measure)) for x, one in line.points]


def _known(measured: Measured, configuration: Configuration, measure: str) -> float:
    value = measured.value(configuration, measure)
    assert value is not None, configuration
    return value


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _cell(series: Series, place: int) -> str:
    """Empty where a line has ended."""
    return _text(series.values[place]) if place < len(series.values) else ""


def _table(figure: Figure, where: Sequence[float], series: Sequence[Series]) -> str:
    heads = "".join(f'<th scope="col" class="number">{escape(one.name)}</th>' for one in series)
    rows = "".join(
        f'<tr><th scope="row">{"" if figure.along == "bars" else f"{x:g}"}</th>'
        + "".join(f'<td class="number">{_cell(one, place)}</td>' for one in series)
        + "</tr>"
        for place, x in enumerate(where)
    )
    return (
        '<details><summary>The values</summary><div class="wide"><table class="values"><thead><tr>'
        f'<th scope="col">{escape(figure.x_label)}</th>{heads}</tr></thead><tbody>{rows}</tbody>'
        "</table></div></details>"
    )
