"""The report of a broker run: figure 7's curves, with the methods' counts marked on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

from dovetail.papers.comparison_table import PAPER, Comparison, render_comparison_table
from dovetail.papers.figure7.query_cost import (
    SWEEP,
    PointTiming,
    SearchPoint,
    Timings,
    mean_queries,
    name_of,
)
from dovetail.papers.wildcard.comparison import METHOD_NAMES, Averages
from dovetail.pipeline.report.line_chart import NamedPoint, Series, legend_key, number, sweep_chart
from dovetail.pipeline.report.page import as_text, head, page

TITLE = "What filter queries cost a broker"

ABOUT = (
    f"Figure 7 of {PAPER}, on Dovetail&rsquo;s own broker: a process that puts a chosen number of "
    "queries to a Bloom filter for each PUBLISH, one publisher, one subscriber, MQTT 5, payloads "
    "of 1,024 bytes, QoS 0, over the loopback address."
)
NOTE = (
    "The paper gives no number of figure 7 in its text, only in its drawing. Counts of queries "
    "are those of <code>dovetail reproduce wildcard</code> with the same seed: figure 6(b) at 10 "
    "levels, 10 trials; ± is their standard error."
)

READING = """\
<section><h2>How to read the charts</h2>
<ul>
<li><b>The curve</b> is the paper&rsquo;s experiment: for each PUBLISH so many random strings of
100 letters are looked up in a filter that holds 10,000 others.</li>
<li><b>The dashed lines</b> stand where each method&rsquo;s mean count at 10 levels is, when
nothing matches. A line crosses the curve where the method would be if each of its queries
cost as much as the curve&rsquo;s.</li>
<li><b>The large markers</b> on them are measured, too: there the broker searches the
method&rsquo;s own sketch of 6,000 filters for each published topic. A method hashes the levels of
a topic once, where the curve hashes 100 letters for each query, so at many queries it is faster
than the curve. For lines a query is one cache line of 64 bytes.</li>
</ul>
<p>Each point is the median of the rounds. A round goes through all points, so that other
load of the machine affects all of them alike.</p>
</section>
"""

DIFFERENCES = """\
<section><h2>Where this differs from the paper, and why</h2>
<ul>
<li><b>Another broker, other machines.</b> The paper changed HiveMQ CE 2024.5 and used three hosts
(Core i9-12900, 1 GbE); here broker and clients are two processes of one machine, and Dovetail
serves all clients on one core. So the shape can be compared, and absolute values cannot.</li>
<li><b>Each PUBLISH has a topic of its own.</b> Dovetail remembers where a topic leads, and would
search once for each topic and not for each PUBLISH. The broker counts what it searched, and the
run fails unless it is one search for each message.</li>
<li><b>Topics that came in one read are searched in one call</b>, as everywhere in Dovetail. The
number of queries is exact all the same: the broker counts them.</li>
<li><b>Another filter.</b> The paper uses Guava&rsquo;s, with 128-bit MurmurHash3; here it is the
sketch of the prefix method, compiled, with strings of one level.</li>
<li><b>Full load is bounded.</b> The paper&rsquo;s publisher sends every 10 microseconds, faster
than its broker takes it. Ours sends as fast as it can, with at most 256 messages under way: that
over the throughput is the mean latency. The other chart has 1,000 messages a second, where a
message hardly meets another one.</li>
<li><b>Shorter.</b> The paper measures each point for 70 seconds.</li>
<li><b>At few queries</b> the curve shows the broker&rsquo;s and the clients&rsquo; own work, which
is the same at every point.</li>
</ul>
</section>
"""


@dataclass(frozen=True)
class BrokerRun:
    """The parameters of a run, for the head of the page."""

    seed: int
    rounds: int
    seconds: float
    finished: datetime
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Measure:
    """A column of the table, which may have a chart."""

    field: str
    label: str
    unit: str
    digits: int

    def of(self, timing: PointTiming) -> float:
        value: float = getattr(timing, self.field)
        return value

    def text(self, timing: PointTiming) -> str:
        return f"{self.of(timing):,.{self.digits}f}"


MEASURES = (
    Measure("messages_per_second", "Throughput", "messages a second", 0),
    Measure("full_load_mean_ms", "Latency at full load, mean", "milliseconds", 2),
    Measure("paced_median_ms", "Latency at 1,000 messages a second, median", "milliseconds", 3),
    Measure("paced_p99_ms", "Latency at 1,000 messages a second, 99 of 100", "milliseconds", 3),
)
CHARTED = MEASURES[:3]


def render_broker(
    run: BrokerRun, measured: Averages, timings: Timings, comparisons: Sequence[Comparison]
) -> str:
    """Return the page."""
    marks = mean_queries(measured)
    facts = {
        "Rounds": f"{run.rounds:,}",
        "Seconds a measurement": number(run.seconds),
        "Seed": str(run.seed),
        "Finished": run.finished.strftime("%Y-%m-%d %H:%M UTC"),
        **run.versions,
    }
    return page(
        TITLE,
        head(TITLE, _headline(marks, timings), ABOUT, facts)
        + render_comparison_table(comparisons, NOTE)
        + READING
        + _charts(marks, timings)
        + _values(marks, timings)
        + DIFFERENCES,
    )


def _headline(marks: Mapping[str, float], timings: Timings) -> str:
    rates = {method: timings[SearchPoint(method)].messages_per_second for method in marks}
    return (
        "With each method&rsquo;s own search at 10 levels, the broker passes on "
        f"{rates['bf']:,.0f} messages a second with BF, {rates['bfp']:,.0f} with BFP, "
        f"{rates['prefix']:,.0f} with the paper&rsquo;s prefix method, and {rates['lines']:,.0f} "
        "with Dovetail&rsquo;s lines."
    )


def _charts(marks: Mapping[str, float], timings: Timings) -> str:
    keys = "".join(
        f"<li>{legend_key(index)}{as_text(METHOD_NAMES[method])}: {marks[method]:,.1f} "
        f"{'cache lines' if method == 'lines' else 'queries'}</li>"
        for index, method in enumerate(marks)
    )
    panels = "".join(_chart(measure, marks, timings) for measure in CHARTED)
    return (
        '<section id="figure-7"><h2>Figure 7: queries per PUBLISH</h2>'
        f'<ul class="legend">{keys}</ul><div class="panels">{panels}</div></section>\n'
    )


def _chart(measure: Measure, marks: Mapping[str, float], timings: Timings) -> str:
    sweep = _sweep(timings)
    chart = sweep_chart(
        f"{measure.label} against queries per PUBLISH, with the places of four methods",
        "queries per PUBLISH",
        measure.unit,
        [point.queries for point in sweep],
        Series(
            measure.label,
            [measure.of(timings[point]) for point in sweep],
            [f"{name_of(point)}: {measure.text(timings[point])}" for point in sweep],
        ),
        [
            NamedPoint(
                METHOD_NAMES[method].split(" ")[0],
                count,
                measure.of(timings[SearchPoint(method)]),
                f"{name_of(SearchPoint(method))}: {measure.text(timings[SearchPoint(method)])}",
            )
            for method, count in marks.items()
        ],
    )
    return (
        f'<figure class="panel"><figcaption><h3>{escape(measure.label)}</h3></figcaption>'
        f"{chart}</figure>"
    )


def _values(marks: Mapping[str, float], timings: Timings) -> str:
    heads = "".join(
        f'<th scope="col" class="number">{escape(measure.label)} ({escape(measure.unit)})</th>'
        for measure in MEASURES
    )
    rows = "".join(
        f'<tr><th scope="row">{as_text(name_of(point))}{_whose(point, marks)}</th>'
        + "".join(f'<td class="number">{measure.text(timings[point])}</td>' for measure in MEASURES)
        + "</tr>"
        for point in [*_sweep(timings), *(SearchPoint(method) for method in marks)]
    )
    return (
        '<section id="values"><h2>The values</h2><div class="wide"><table class="values"><thead>'
        f'<tr><th scope="col">For each PUBLISH</th>{heads}</tr></thead><tbody>{rows}</tbody>'
        "</table></div></section>\n"
    )


def _whose(point: SearchPoint, marks: Mapping[str, float]) -> str:
    names = [
        METHOD_NAMES[method].split(" ")[0]
        for method, count in marks.items()
        if point == SearchPoint(SWEEP, round(count))
    ]
    return f' <span class="soft">({" and ".join(names)})</span>' if names else ""


def _sweep(timings: Timings) -> list[SearchPoint]:
    return sorted((point for point in timings if point.kind == SWEEP), key=lambda at: at.queries)
