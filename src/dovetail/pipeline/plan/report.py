"""Render a plan's document as one HTML page."""

from collections.abc import Iterable, Sequence
from html import escape

from dovetail.pipeline.plan.charts import (
    BOXES,
    EVEN,
    PLANNED,
    POINTS,
    dimension_chart,
    shares_chart,
)
from dovetail.pipeline.plan.document import LoadFigures, PlanDocument, SketchFigures, SpaceFigures
from dovetail.pipeline.report.page import as_text, head, page


def report(plan: PlanDocument) -> str:
    facts = {
        "Messages": f"{plan.messages:,}",
        "Subscriptions": f"{plan.subscriptions:,}",
        "Matchers planned for": f"{plan.matchers:,}",
        "Spaces": ", ".join(one.space for one in plan.spaces) or "none",
    }
    body = head(
        "A plan for matchers and brokers",
        _lead(plan),
        "From messages as they were archived and subscriptions as they were. What follows is an "
        "estimate for the same again; the numbers are in the JSON file beside this page.",
        facts,
    )
    body += "".join(_space(one) for one in plan.spaces)
    body += _need(plan) + _sketches(plan.sketches) + _topics(plan)
    return page("A plan for matchers and brokers", body)


def _lead(plan: PlanDocument) -> str:
    sentences = [
        f"{as_text(one.space)}: with planned borders {plan.matchers} matchers take "
        f"{_times(one.planned.capacity, one.even.capacity)} what they take with even ones."
        for one in plan.spaces
    ]
    return " ".join(sentences) or "No space was given, so nothing is planned for matchers."


def _times(planned: float | None, even: float | None) -> str:
    return f"{planned / even:.3g} times" if planned and even else "as much as"


def rate_words(capacity: float | None) -> str:
    if capacity is None:
        return "any"
    return f"{float(f'{capacity:.3g}'):,.0f}" if capacity >= 100 else f"{capacity:.3g}"


# Spaces -------------------------------------------------------------------------------------------


def _space(one: SpaceFigures) -> str:
    name = as_text(one.space)
    loads = [("even", EVEN, one.even)]
    if one.now is not None:
        loads.append(("as they are now", BOXES, one.now))
    loads.append(("planned", PLANNED, one.planned))
    charts = "".join(
        f'<figure class="panel"><figcaption><h3>{as_text(own.name)}</h3></figcaption>'
        f"{dimension_chart(own)}</figure>"
        for own in one.dimensions
        if own.is_searchable
    )
    shares = [(word, style, load.shares) for word, style, load in loads if load.shares]
    if shares:
        charts += (
            '<figure class="panel"><figcaption><h3>What each matcher has to do</h3></figcaption>'
            f"{shares_chart(f'Work of matchers in {one.space}', shares)}</figure>"
        )
    wide = (
        f" {one.wide_boxes:,} of them are narrow on no searchable dimension, and no matcher holds "
        "them: a broker that has one gets every publication."
        if one.wide_boxes
        else ""
    )
    return (
        f"<section><h2>Space {name}</h2><p>{one.messages:,} messages ({one.share:.0%} of all), "
        f"{one.boxes:,} boxes.{wide}</p><h3>Borders</h3>{_loads(loads)}{_legend()}"
        f'<div class="panels">{charts}</div><h3>Which dimensions to search</h3>'
        f"<p>{as_text(one.why)}</p>{_sets(one)}{_dimensions(one)}</section>\n"
    )


def _legend() -> str:
    entries = (
        (POINTS, "publications"),
        (BOXES, "boxes that overlap"),
        (EVEN, "even borders (above)"),
        (PLANNED, "planned borders (below)"),
    )
    return (
        '<ul class="legend">'
        + "".join(
            f'<li><svg class="key" viewBox="0 0 40 20" aria-hidden="true"><line class="line '
            f'series-{style + 1}" x1="1" x2="39" y1="10" y2="10"/></svg>{words}</li>'
            for style, words in entries
        )
        + "</ul>"
    )


def _loads(loads: Sequence[tuple[str, int, LoadFigures]]) -> str:
    return _table(
        ("borders", "publications a second", "busiest, by the mean", "questions each", "copies"),
        [
            (
                word,
                rate_words(load.capacity),
                f"{load.unevenness:.2f}",
                f"{load.questions:.2f}",
                f"{load.copies:.2f}",
            )
            for word, _, load in loads
        ],
    )


def _sets(one: SpaceFigures) -> str:
    return _table(
        (
            "dimensions",
            "boxes narrow on none",
            "publications a second",
            "with even borders",
            "questions each",
            "copies",
        ),
        [
            (
                ", ".join(own.dimensions) + (" ✓" if own.dimensions == one.recommended else ""),
                f"{own.wide_share:.1%}",
                rate_words(own.capacity),
                rate_words(own.even_capacity),
                f"{own.questions:.2f}",
                f"{own.copies:.2f}",
            )
            for own in one.sets
        ],
    )


def _dimensions(one: SpaceFigures) -> str:
    return _table(
        (
            "dimension",
            "bounds",
            "searchable",
            "skew",
            "missing",
            "beyond bounds",
            "boxes narrow",
            "boxes open",
            "median width",
        ),
        [
            (
                own.name,
                f"{own.low:g} to {own.high:g}",
                "yes" if own.is_searchable else "no",
                f"{own.skew:.2f}",
                f"{own.missing_share:.1%}",
                f"{own.outside_share:.1%}",
                f"{own.narrow_share:.0%}",
                f"{own.open_share:.0%}",
                f"{own.width_median:.2%}",
            )
            for own in one.dimensions
        ],
        note="Skew: publications in the fullest of as many even segments as there are matchers, by "
        "the mean. Narrow: over half of the bounds at most. Widths are shares of the bounds.",
    )


# The rest -----------------------------------------------------------------------------------------


def _need(plan: PlanDocument) -> str:
    if plan.costs is None:
        return ""
    costs = plan.costs
    each = costs.point_seconds + costs.question_seconds / costs.question_points
    words = (
        f"<p>Measured where this plan was made, with {costs.boxes:,} boxes and without "
        f"connections: a question costs the core of a matcher {costs.question_seconds * 1e6:.3g} "
        f"µs, each point of it {costs.point_seconds * 1e6:.3g} µs, a match "
        f"{costs.match_seconds * 1e9:.3g} ns. With {costs.question_points} publications in a "
        f"question that is {each * 1e6:.3g} µs for each, and matches.</p>"
    )
    if plan.need is not None:
        need = plan.need
        planned = matchers_words(need.matchers, need.tried_max)
        even = matchers_words(need.even_matchers, need.tried_max)
        words += (
            f"<p>For {need.rate:,.6g} messages a second, with the busiest at work for "
            f"{need.busy_share_max:.0%} of its time at most: {planned} with planned borders, "
            f"{even} with even ones.</p>"
        )
    return f"<section><h2>Matchers for a rate</h2>{words}</section>\n"


def matchers_words(matchers: int | None, most: int) -> str:
    if matchers is None:
        return f"more than {most} matchers"
    return "1 matcher" if matchers == 1 else f"{matchers} matchers"


def _sketches(sketches: Iterable[SketchFigures]) -> str:
    sizes = ("as brokers do it", "1 in 100", "1 in 1,000", "1 in 10,000")
    table = _table(
        ("broker", "filters", "elements", *sizes),
        [
            (
                one.broker or "one with all of them",
                f"{one.filters:,}",
                f"{one.elements:,}",
                *(f"{size.bytes:,} bytes" for size in one.sizes),
            )
            for one in sketches
        ],
        note="Bytes of a sketch that other brokers hold and search, by how many look-ups in it are "
        "answered yes wrongly. Brokers size theirs for 3 in 1,000, with room to grow.",
    )
    return f"<section><h2>Sketches</h2>{table}</section>\n"


def _topics(plan: PlanDocument) -> str:
    topics = plan.topics
    hot = _table(
        ("topic", "messages", "of all"),
        [(one.topic, f"{one.messages:,}", f"{one.share:.1%}") for one in topics.hot],
    )
    levels = _table(
        ("levels", "topics", "messages"),
        [(str(one.levels), f"{one.topics:,}", f"{one.messages:,}") for one in topics.levels],
    )
    return (
        f"<section><h2>Topics</h2><p>{topics.topics:,} different ones.</p><h3>The hottest</h3>{hot}"
        f"<h3>By levels</h3>{levels}</section>\n"
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> str:
    first, *others = heads
    top = f'<th scope="col">{escape(first)}</th>' + "".join(
        f'<th scope="col" class="number">{escape(one)}</th>' for one in others
    )
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f'<td class="number">{escape(value)}</td>' for value in row[1:])
        + "</tr>"
        for row in rows
    )
    below = f'<p class="soft">{note}</p>' if note else ""
    return (
        f'<div class="wide"><table class="values numbers"><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{below}"
    )
