"""`dovetail plan`: from options to a page and a JSON file.

Wrong options are refused before Spark starts, and so is a number of matchers that differs from the
cluster that shall adopt the plan. The page and the JSON file appear whole. Existing files are
replaced, because plans are made repeatedly.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dovetail import __version__
from dovetail.api.reports import ClusterReport, PlanRequest
from dovetail.attributes.scheme import Scheme
from dovetail.attributes.space import Space
from dovetail.errors import ConfigError
from dovetail.pipeline.match.bulk import spaces_of
from dovetail.pipeline.plan.cost import QUESTION_POINTS, MeasuredCosts, measure
from dovetail.pipeline.plan.counts import ArchiveCounts, count
from dovetail.pipeline.plan.document import (
    SCHEMA,
    CostFigures,
    PlanDocument,
    SpaceFigures,
    order_of,
    to_json,
)
from dovetail.pipeline.plan.load import PointCosts
from dovetail.pipeline.plan.planner import (
    SpaceCounts,
    matchers_in,
    need_figures,
    places_now,
    space_figures,
)
from dovetail.pipeline.plan.report import matchers_words, rate_words, report
from dovetail.pipeline.spark.output_folder import write_errors
from dovetail.pipeline.spark.progress import show_progress, show_steps
from dovetail.pipeline.spark.resources import announce
from dovetail.pipeline.spark.spark_session import check_master, open_session
from dovetail.pipeline.spark.table_files import (
    check_messages,
    check_path,
    read_messages,
    read_subscriptions,
)
from dovetail.process import terminal

MATCHERS = 4
"""The default number of matchers if no cluster is asked."""


def plan_files(
    *,
    messages: str,
    out: Path,
    subscriptions: str | None = None,
    config: Path | None = None,
    matchers: int | None = None,
    rate: float | None = None,
    cluster: ClusterReport | None = None,
    is_applied: bool = False,
    master: str | None = None,
) -> PlanRequest | None:
    """Make a plan. Without `subscriptions`, use those of the archive `messages`.

    `cluster` is the current state of the cluster. If the plan `is_applied`, return the order for
    it.
    """
    if master is not None:
        check_master(master)
    if out.suffix != ".html":
        raise ConfigError(f"--out {out}: it takes the name of a page, such as plan.html.")
    spaces = () if config is None else spaces_of(config)
    wanted = messages if subscriptions is None else subscriptions
    check_messages(messages)
    check_path(wanted)
    planned_for = _matchers(matchers, cluster, must_fit=is_applied)
    started = time.monotonic()
    console = terminal.console(stderr=True, highlight=False, soft_wrap=True)
    with open_session(master) as spark:
        announce(spark, console)
        with show_progress(spark, "Counting messages and subscriptions", None, console):
            given = read_messages(spark, messages)
            counted = count(given, read_subscriptions(spark, wanted), spaces)
    # One step measures the cost of matching, then there is one for each space.
    title, steps = f"Planning for {planned_for} matchers", len(spaces) + 1
    with show_steps(title, steps, console) as step:
        document = make_plan(counted, spaces, planned_for, rate, cluster, step)
    beside = out.with_suffix(".json")
    _write_whole(out, report(document).encode())
    _write_whole(beside, to_json(document))
    terminal.say_text(summary(document, time.monotonic() - started, out, beside))
    return order_of(document) if is_applied else None


def _matchers(given: int | None, cluster: ClusterReport | None, *, must_fit: bool) -> int:
    there = 0 if cluster is None else matchers_in(cluster)
    if must_fit and not there:
        raise ConfigError(
            "there are no matchers in the cluster that could move.",
            hint="`dovetail up --brokers 2 --matchers 4` starts some.",
        )
    if must_fit and given is not None and given != there:
        raise ConfigError(
            f"the plan is to be for {given} matchers, and the cluster has {there}.",
            hint=f"Without --matchers it is for as many as there are; or --matchers {there}.",
        )
    return given or there or MATCHERS


def make_plan(
    counted: ArchiveCounts,
    spaces: Sequence[Space],
    matchers: int,
    rate: float | None,
    cluster: ClusterReport | None,
    step: Callable[[], None],
) -> PlanDocument:
    """Plan all spaces, except those that a stream serves or that each matcher has as a whole."""
    shared = [
        own
        for own, space in zip(counted.spaces, spaces, strict=True)
        if space.sharing.scheme is not Scheme.FULL and not space.is_streamed
    ]
    measured = measure(_largest(shared).sample) if shared else None
    need = None
    if rate is not None and measured is not None:
        shares = [(own.sample, own.messages / max(counted.messages, 1)) for own in shared]
        need = need_figures(shares, rate, measured.costs)
    step()

    def figures(own: SpaceCounts, costs: PointCosts) -> SpaceFigures:
        now = None if cluster is None else places_now(cluster, own.sample.layout)
        found = space_figures(own, counted.messages, matchers, costs, now)
        step()
        return found

    return PlanDocument(
        schema=SCHEMA,
        version=__version__,
        messages=counted.messages,
        subscriptions=counted.subscriptions,
        matchers=matchers,
        spaces=tuple(figures(own, measured.costs) for own in shared if measured is not None),
        need=need,
        costs=None if measured is None else _costs(measured),
        sketches=counted.sketches,
        topics=counted.topics,
    )


def _write_whole(path: Path, data: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    with write_errors(path):
        try:
            unfinished.write_bytes(data)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)


def _largest(spaces: Sequence[SpaceCounts]) -> SpaceCounts:
    return max(spaces, key=lambda own: own.messages)


def _costs(measured: MeasuredCosts) -> CostFigures:
    return CostFigures(*measured, question_points=QUESTION_POINTS)


def summary(plan: PlanDocument, seconds: float, out: Path, beside: Path) -> str:
    lines = [
        f"in      {plan.messages:,} messages, {plan.subscriptions:,} subscriptions",
    ]
    for one in plan.spaces:
        lines.append(
            f"space   {one.space}: {plan.matchers} matchers take about "
            f"{rate_words(one.planned.capacity)} publications a second, and with even borders "
            f"{rate_words(one.even.capacity)}; the busiest has {one.planned.unevenness:.2f} times "
            f"the mean, and {one.even.unevenness:.2f}"
        )
        if one.now is not None:
            lines.append(
                f"        as they are now {rate_words(one.now.capacity)}, and "
                f"{one.now.unevenness:.2f} times the mean"
            )
        lines.append(f"        {one.why}")
    if plan.need is not None:
        needed = matchers_words(plan.need.matchers, plan.need.tried_max)
        lines.append(f"rate    {plan.need.rate:,.6g} messages a second: {needed}")
    lines += [
        f"time    {seconds:.0f} s",
        f"output  {out.absolute()}",
        f"        {beside.absolute()}",
    ]
    return "\n".join(lines)
