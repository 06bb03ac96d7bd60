"""The report of a run: history and verdicts to one HTML page. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from math import inf

from reliability import timeline
from reliability.context import context
from reliability.page import page
from reliability.record import Record
from reliability.schedule import EXPLANATIONS
from reliability.summary import acknowledged, delivered
from reliability.verdict import Verdict, Violation

VIOLATIONS_SHOWN_MAX = 20
"""The violations of each promise that are shown with their context."""

_QUANTILES = (0.5, 0.9, 0.99, 0.999)


def report(record: Record, verdicts: Sequence[Verdict], replay: str) -> str:
    """Return the page. `replay` is the command that repeats the run."""
    seed = record.run.seed if record.run else 0
    parts = [
        _head(record, verdicts),
        _promises(verdicts),
        _timeline(record, verdicts),
        _violations(record, verdicts),
        _latencies(record),
        _faults(record),
        _replay(replay),
    ]
    return page(f"Dovetail, reliability, seed {seed}", "\n".join(parts))


def _head(record: Record, verdicts: Sequence[Verdict]) -> str:
    broken = [verdict.promise.name for verdict in verdicts if not verdict.holds]
    tested = [verdict for verdict in verdicts if verdict.judged]
    if broken:
        verb = "was" if len(broken) == 1 else "were"
        lead = f"{len(broken)} of {len(tested)} promises {verb} broken: {', '.join(broken)}."
    else:
        lead = f"All {len(tested)} promises that were tested were kept."
    if record.is_partial:
        lead += " The run was stopped before its end, so some promises could not be judged."
    run = record.run
    facts = {
        "seed": str(run.seed) if run else "",
        "started": run.started if run else "",
        "version": run.version if run else "",
        "duration": f"{record.until:,.0f} s",
        "brokers": f"{len(run.nodes)}" if run else "",
        "network": run.network if run else "",
        "clients": f"{len(record.clients):,}",
        "operations": f"{record.operations:,}",
        "acknowledged, QoS 1 and 2": f"{acknowledged(record):,}",
        "deliveries": f"{delivered(record):,}",
        "faults": f"{len(record.disturbances):,}",
        "violations": f"{sum(verdict.violated for verdict in verdicts):,}",
    }
    entries = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in facts.items()
    )
    return (
        f'<header><h1>What the cluster promised, and what it did</h1><p class="lead">{lead}</p>'
        '<p class="soft">Clients used a cluster of Dovetail brokers while faults were injected. '
        "Every operation was recorded, and checkers compared the history with the promises in the "
        "documentation (docs/reliability.md).</p>"
        f'<dl class="run">{entries}</dl></header>'
    )


def _promises(verdicts: Sequence[Verdict]) -> str:
    rows = "".join(_promise(verdict) for verdict in verdicts)
    return (
        '<section><h2>Promises</h2><div class="wide"><table class="promises"><thead><tr>'
        '<th scope="col">Promise</th><th scope="col">Verdict</th>'
        '<th scope="col" class="number">Judged</th><th scope="col" class="number">Excused</th>'
        '<th scope="col" class="number">Violations</th></tr></thead>'
        f'<tbody>{rows}</tbody></table></div><p class="soft">Judged: how many times the promise '
        "could have been broken. Excused: the documentation promises less there, for the reason "
        "given.</p></section>"
    )


def _promise(verdict: Verdict) -> str:
    kind = {"kept": "kept", "broken": "broken"}.get(verdict.word, "untested")
    sign = {"kept": "✓", "broken": "✗"}.get(kind, "·")
    excuses = "".join(
        f"<li>{escape(reason)}: {count:,}</li>" for reason, count in verdict.excused.most_common()
    )
    why = f"<details><summary>excused</summary><ul>{excuses}</ul></details>" if excuses else ""
    return (
        f'<tr><th scope="row">{escape(verdict.promise.name)}<br>'
        f'<span class="soft">{escape(verdict.promise.text)}</span>{why}</th>'
        f'<td class="verdict {kind}">{sign} {verdict.word}</td>'
        f'<td class="number" data-label="Judged">{verdict.judged:,}</td>'
        f'<td class="number" data-label="Excused">{sum(verdict.excused.values()):,}</td>'
        f'<td class="number" data-label="Violations">{verdict.violated:,}</td></tr>'
    )


def _timeline(record: Record, verdicts: Sequence[Verdict]) -> str:
    violations = [one for verdict in verdicts for one in verdict.violations]
    nodes = record.run.nodes if record.run else ()
    layers = [("process", "process"), ("network", "network"), ("disk", "disk")]
    return (
        "<section><h2>Timeline</h2><p>All times are seconds since the run began.</p>"
        f"<h3>Faults</h3>{_legend(layers)}"
        f'<div class="wide">{timeline.faults(record)}</div>'
        '<p class="soft">“whole” marks the moments at which every broker answered every other '
        "one, and no fault was active.</p>"
        f'<h3>Operations</h3><div class="wide">{timeline.operations(record)}</div>'
        f"<h3>Clients</h3>{_legend([(f'node node-{i}', n) for i, n in enumerate(nodes, 1)])}"
        f'<div class="wide">{timeline.clients(record, violations)}</div>'
        '<p class="soft">A bar is a connection, in the colour of its broker. A cross is a '
        "violation. Clients with a will, which live once each, are left out.</p></section>"
    )


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    items = "".join(
        f'<li><svg viewBox="0 0 14 14"><rect class="{kind}" width="14" height="14"/></svg>'
        f"{escape(name)}</li>"
        for kind, name in entries
    )
    return f'<ul class="legend">{items}</ul>'


def _violations(record: Record, verdicts: Sequence[Verdict]) -> str:
    parts = ["<section><h2>Violations</h2>"]
    broken = [verdict for verdict in verdicts if not verdict.holds]
    if not broken:
        parts.append("<p>None.</p>")
    for verdict in broken:
        parts.append(f"<h3>{escape(verdict.promise.name)}: {verdict.violated:,}</h3>")
        shown = verdict.violations[:VIOLATIONS_SHOWN_MAX]
        parts += [_violation(record, one) for one in shown]
        if verdict.violated > len(shown):
            parts.append(f"<p>… and {verdict.violated - len(shown):,} more.</p>")
    return "".join([*parts, "</section>"])


def _violation(record: Record, violation: Violation) -> str:
    lines = "\n".join(context(record, violation))
    return (
        f'<div class="violation"><p>{violation.at:.3f} s: {escape(violation.text)}</p>'
        f"<details><summary>context</summary><pre>{escape(lines)}</pre></details></div>"
    )


def _latencies(record: Record) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(f'<td class="number">{cell}</td>' for cell in cells)
        + "</tr>"
        for name, cells in _latency_rows(record)
    )
    heads = "".join(
        f'<th scope="col" class="number">{name}</th>'
        for name in ("count", *(f"p{100 * one:g}" for one in _QUANTILES), "longest")
    )
    return (
        "<section><h2>How long acknowledgements took</h2><p>From PUBLISH to PUBACK or PUBREC, in "
        "seconds. No promise is judged by these; publishers wait while brokers are away.</p>"
        f'<div class="wide"><table><thead><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def _latency_rows(record: Record) -> Iterator[tuple[str, list[str]]]:
    times: dict[str, list[float]] = {"calm": [], "disturbed": []}
    for one in record.publications.values():
        if one.is_acknowledged:
            is_calm = not any(record.disturbed(one.invoked_at, one.completed_at))
            times["calm" if is_calm else "disturbed"].append(one.completed_at - one.invoked_at)
    for name, values in times.items():
        values.sort()
        cells = [f"{len(values):,}"]
        if values:
            cells += [f"{values[int(one * (len(values) - 1))]:.3f}" for one in _QUANTILES]
            cells.append(f"{values[-1]:.3f}")
        yield name, cells


def _faults(record: Record) -> str:
    counts = Counter(one.fault for one in record.disturbances)
    kinds = "".join(
        f'<tr><th scope="row">{escape(kind)}</th><td>{escape(EXPLANATIONS[kind])}</td>'
        f'<td class="number">{counts[kind]:,}</td></tr>'
        for kind in EXPLANATIONS
    )
    each = "\n".join(
        f"{one.began_at:9.3f} s  {one.fault:8} {', '.join(one.nodes):16} {one.detail:12} "
        + (f"until {one.ended_at:.3f} s" if one.ended_at < inf else "until the end")
        for one in record.disturbances
    )
    return (
        '<section><h2>Faults</h2><div class="wide"><table><thead><tr><th scope="col">Fault</th>'
        '<th scope="col">What it is</th><th scope="col" class="number">Count</th></tr></thead>'
        f"<tbody>{kinds}</tbody></table></div>"
        f"<details><summary>each of them</summary><pre>{escape(each)}</pre></details></section>"
    )


def _replay(replay: str) -> str:
    return (
        f"<section><h2>Run it again</h2><pre>{escape(replay)}</pre>"
        "<p>The seed decides what clients do and which faults come. How processes are scheduled it "
        "does not decide, so a violation may need several runs to come again. The recorded history "
        "can be checked again as often as you like: <code>scripts/soak --check FILE</code>.</p>"
        "</section>"
    )
