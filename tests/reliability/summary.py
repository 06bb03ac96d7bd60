"""Summarizes a run as text for a terminal. Pure."""

from collections.abc import Sequence

from reliability.record import Record
from reliability.verdict import Verdict

SHOWN_MAX = 5
"""Violations that are shown of each promise; the report has more."""


def summary(record: Record, verdicts: Sequence[Verdict]) -> str:
    lines = [*_figures(record), "", f"{'promise':10} {'verdict':10} {'judged':>9} {'excused':>9}"]
    for verdict in verdicts:
        excused = sum(verdict.excused.values())
        lines.append(
            f"{verdict.promise.name:10} {verdict.word:10} {verdict.judged:>9,} {excused:>9,}"
            + (f"  {verdict.violated:,} violations" if verdict.violated else "")
        )
    for verdict in verdicts:
        if verdict.violated:
            lines += ["", f"{verdict.promise.name}: {verdict.promise.text}"]
            lines += [f"  {one.at:.3f} s: {one.text}" for one in verdict.violations[:SHOWN_MAX]]
            if verdict.violated > SHOWN_MAX:
                lines.append(f"  ... and {verdict.violated - SHOWN_MAX:,} more")
    return "\n".join(lines)


def acknowledged(record: Record) -> int:
    """Return how many publications at QoS 1 and 2 were acknowledged."""
    return sum(one.is_acknowledged for one in record.publications.values())


def delivered(record: Record) -> int:
    return sum(len(client.deliveries) for client in record.clients.values())


def _figures(record: Record) -> list[str]:
    kinds: dict[str, int] = {}
    for fault in record.disturbances:
        kinds[fault.fault] = kinds.get(fault.fault, 0) + 1
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    time = f"{record.until:,.0f} s"
    return [
        f"{time}, {record.operations:,} operations by {len(record.clients):,} clients",
        f"{len(record.publications):,} publications, {delivered(record):,} deliveries",
        f"{acknowledged(record):,} publications acknowledged at QoS 1 and 2",
        f"{len(record.disturbances)} faults" + (f": {counted}" if counted else ""),
    ]
