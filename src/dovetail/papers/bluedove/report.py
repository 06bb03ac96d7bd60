"""The report of a BlueDove run: the paper's numbers beside ours, and the charts of all figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

from dovetail.papers.bluedove.elasticity_numbers import TOLERANCE
from dovetail.papers.bluedove.figure_charts import bars, curves, decades, style_of, time_curves
from dovetail.papers.bluedove.figure_model import Curve, Figure, Panel, ScalingCheck
from dovetail.papers.bluedove.run_configuration import (
    BOXES,
    EVENT,
    NARROW,
    RATE,
    SLOWDOWN,
    Configuration,
    TrialMeans,
)
from dovetail.papers.bluedove.scale_experiments import MATCHER_POINTS, SAMPLE, SIMULATED_MAX
from dovetail.papers.bluedove.scale_figures import COUNTED_MAX
from dovetail.papers.bluedove.scaling_limits import find_scaling_limits
from dovetail.papers.comparison_table import Comparison, render_comparison_table
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
"""The measures that charts show in thousands."""

EVENTS = {
    "9": "a matcher is started",
    "10": "a matcher falls silent",
    "crash-100": "a matcher falls silent",
}
"""The meaning of the dashed lines in a figure."""

READING = f"""\
<section><h2>How to read the charts</h2>
<p>Candidates, segments, forwarding policies and load reports are the code that serves clients; time
is simulated. A matcher looks at each box that it holds along a dimension, as the
paper&rsquo;s does: Dovetail&rsquo;s own index does not, and is far faster, but then there is little
to choose between the systems that are compared here.</p>
<ul>
<li><b>Boxes 250 wide</b> are what the paper&rsquo;s text describes.</li>
<li><b>Boxes in one segment</b> are {NARROW:g} wide: nearly each has one copy a dimension. The
paper&rsquo;s results fit that kind, whatever its text says.</li>
</ul>
<p>In figures 9 and 10 and for the overhead everything is simulated: gossip, joins, feeds, repeated
questions. Dashed lines are where a matcher is started, or falls silent.</p>
</section>
"""

HYPOTHESES_NOTE = (
    "Possible reasons why the paper&rsquo;s numbers and ours differ. Each row changes one thing, "
    "and shows the best rate of matchers as a multiple of the other systems&rsquo; rates. These "
    "are computed; real queues stay a little below. The paper&rsquo;s numbers are in brackets. A "
    "fixed cost per message moves P2P and the spread of boxes to the paper&rsquo;s numbers, but "
    "full replication away from them. No row agrees with all numbers."
)

SCALING = f"""\
<p>Not all of this can be run in full. Rates are simulated up to {SIMULATED_MAX} matchers, with two
brokers. Time is stretched so that a matcher gets about {MATCHER_POINTS:.0f} messages a second at
its limit. For more matchers the best rate is computed. Rates use a sample of {SAMPLE:,} boxes, each
of which stands for several and takes longer in proportion. Boxes per matcher are counted in full up
to {COUNTED_MAX / 1e6:.0f} million boxes, and with a sample above. Gossip is simulated up to 200
matchers and computed beyond. Dovetail&rsquo;s own index is a formula of times that were measured
with up to 40,000 boxes. Segments are even.</p>
"""

DIFFERENCES = f"""\
<section><h2>Where this differs from the paper, and why</h2>
<ul>
<li><b>The speed of a matcher is fitted</b>, for each width of boxes, so that 20 matchers saturate
near the paper&rsquo;s 114,000 messages a second. Everything else follows from it.</li>
<li><b>Matching takes {SLOWDOWN} times as long, and rates are {SLOWDOWN} times lower.</b> Charts
show rates times {SLOWDOWN}. Response times below saturation are matching times, so they are
{SLOWDOWN} times those of the paper&rsquo;s machines.</li>
<li><b>A rate is too high</b> if, at some matcher, the waiting time of questions grows throughout a
trial of 20 seconds, by more than 3 % of the time that passes. The paper observed five minutes.</li>
<li><b>Messages come at even times</b>, at points that fill the space evenly: at a hundredth of the
rate, random messages would make queues vary ten times as much.</li>
<li><b>P2P holds a box at each matcher whose segment it overlaps</b>, and so finds every match. The
paper says that only one matcher stores a box: a box that crosses a border would be missed.</li>
<li><b>Figures 9 and 10 are shorter</b>: the rate rises every 15 seconds, and a matcher falls silent
every 30, where the paper waited for five minutes. There are 1,000 boxes, each of which takes as
long as 40 would. Figure 10 and the overhead use the service&rsquo;s own time limits, so matching
is faster there and matchers are lightly loaded.</li>
<li><b>The settings of figures 9 and 10 matter</b>. If matchers are added at 90 % load instead of
80 %, work has piled up by then and response times stay above a second. With matchers half busy at
40 ms a message, questions exceed the time limit even without a crash.</li>
<li><b>A matcher that crashes falls silent</b>, like a machine that loses power: its connections do
not break. Brokers ask the next candidate after 0.3 seconds, and then avoid the silent one.</li>
</ul>
</section>
"""


@dataclass(frozen=True)
class BlueDoveRun:
    """The parameters of a run, for the head of the page."""

    seed: int
    trials: int
    figures: Sequence[Figure]
    finished: datetime
    versions: Mapping[str, str]


def render_bluedove(
    run: BlueDoveRun, measured: TrialMeans, comparisons: Sequence[Comparison]
) -> str:
    """Return the page."""
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
        + render_comparison_table(comparisons, NOTE)
        + READING
        + "".join(_figure(figure, measured) for figure in run.figures)
        + _scaling_limits(measured)
        + DIFFERENCES,
    )


def _headline(comparisons: Sequence[Comparison]) -> str:
    known = [row for row in comparisons if row.agrees is not None]
    agree = sum(bool(row.agrees) for row in known)
    return f"Of {len(known)} numbers of the paper that were run, {agree} come out as it has them."


def _figure(figure: Figure, measured: TrialMeans) -> str:
    if figure.along == "names":
        return _tables(figure, measured)
    panels = "".join(_panel(figure, panel, measured) for panel in figure.panels)
    legend = ""
    if figure.along not in ("bars", "log") and len(figure.panels[0].curves) > 1:
        legend = _legend(figure.panels[0])
    scaling = SCALING if figure.along == "log" else ""
    return (
        f'<section id="figure-{figure.name}"><h2>{_printed(figure)}</h2>{scaling}{legend}'
        f'<div class="panels">{panels}</div>{_checks(figure.checks, measured)}</section>\n'
    )


def _tables(figure: Figure, measured: TrialMeans) -> str:
    """Return a table for each panel, with a column for each curve."""
    found = ""
    for panel in figure.panels:
        columns = [dict(_values(figure, curve, measured)) for curve in panel.curves]
        heads = "".join(
            f'<th scope="col" class="number">{escape(curve.name)}</th>' for curve in panel.curves
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
        f"<p>{HYPOTHESES_NOTE}</p>{found}</section>\n"
    )


def _legend(panel: Panel) -> str:
    keys = "".join(
        f"<li>{legend_key(style_of(index))}{escape(curve.name)}</li>"
        for index, curve in enumerate(panel.curves)
    )
    return f'<ul class="legend">{keys}</ul>'


def _printed(figure: Figure) -> str:
    """Return the title as the paper writes it: `6a` is Figure 6(a)."""
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


def _checks(checks: Sequence[ScalingCheck], measured: TrialMeans) -> str:
    """Return the table that compares scaled runs with full ones."""
    if not checks:
        return ""
    rows = ""
    for check in checks:
        whole, scaled = (
            _known(measured, one, check.measure) for one in (check.whole, check.scaled)
        )
        rows += (
            f'<tr><th scope="row">{as_text(check.subject)}</th>'
            f'<td class="number">{_text(whole)}</td>'
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


def _scaling_limits(measured: TrialMeans) -> str:
    """Return the section on the limits of scaling."""
    found = find_scaling_limits(measured)
    if not found:
        return ""
    items = "".join(
        f"<li><b>{as_text(limit.claim)}</b> {as_text(limit.evidence)}</li>" for limit in found
    )
    return f'<section id="scaling-limits"><h2>Where scaling ends</h2><ul>{items}</ul></section>\n'


def _panel(figure: Figure, panel: Panel, measured: TrialMeans) -> str:
    title = f"{figure.title}: {panel.title}"
    found = [_values(figure, curve, measured) for curve in panel.curves]
    series = [
        Series(
            curve.name,
            [value for _, value in values],
            [f"{curve.name}, {x:g}: {_text(value)}" for x, value in values],
        )
        for curve, values in zip(panel.curves, found, strict=True)
    ]
    where = [x for x, _ in max(found, key=len)]
    table = _table(figure, where, series)
    unit = 1_000 if figure.measure in THOUSANDS and figure.along != "log" else panel.unit
    series = [Series(one.name, [value / unit for value in one.values], one.notes) for one in series]
    y_label = panel.y_label or figure.y_label
    if figure.along == "bars":
        chart = bars(title, y_label, series)
    elif figure.along == "time":
        happened = [at for at, _ in measured.over(panel.curves[0].points[0][1], EVENT)]
        events = [(at, f"{EVENTS[figure.name]} at {at:g} s") for at in happened]
        chart = time_curves(title, figure.x_label, y_label, where, series, events)
    elif figure.along == "log":
        chart = decades(title, figure.x_label, y_label, where, series)
        if len(panel.curves) > 1:
            chart = _legend(panel) + chart
    else:
        chart = curves(title, figure.x_label, y_label, where, series)
    return (
        f'<figure class="panel"><figcaption><h3>{as_text(panel.title)}</h3></figcaption>{chart}'
        f"{table}</figure>"
    )


def _values(figure: Figure, curve: Curve, measured: TrialMeans) -> list[tuple[float, float]]:
    measure = curve.measure or figure.measure
    if curve.is_own or figure.along in ("time", "matchers"):
        return measured.over(curve.points[0][1], measure)
    return [(x, _known(measured, one, measure)) for x, one in curve.points]


def _known(measured: TrialMeans, configuration: Configuration, measure: str) -> float:
    value = measured.value(configuration, measure)
    assert value is not None, configuration
    return value


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _cell(series: Series, place: int) -> str:
    """Return the value as text; empty after the end of the curve."""
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
