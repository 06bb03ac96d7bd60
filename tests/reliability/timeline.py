"""Draws faults and connections over time, as SVG text. Pure.

Colours come from the page's custom properties, so a drawing follows the reader's theme. Colour is
never the only sign: bars have names or tooltips, and the page has tables with the same facts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import inf

from reliability.record import Client, Record
from reliability.verdict import Violation

WIDTH = 1_000
LEFT, RIGHT = 150, 12
LANE, GAP = 16, 4
BINS = 150
CLIENTS_MAX = 60
"""The most lanes of clients; those with violations come first."""

_LAYERS = {
    "process": ("kill", "stop", "restart", "rolling", "clock"),
    "network": ("cut", "one-way", "reset", "delay", "loss", "slow"),
    "disk": ("disk",),
}


@dataclass(frozen=True)
class Scale:
    """Converts seconds to positions in the drawing."""

    seconds: float

    def x(self, at: float) -> float:
        at = min(max(at, 0), self.seconds)
        return round(LEFT + at / self.seconds * (WIDTH - LEFT - RIGHT), 1)

    def ticks(self) -> list[float]:
        step = next(
            (one for one in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600) if self.seconds / one <= 12),
            3_600,
        )
        return [step * number for number in range(int(self.seconds / step) + 1)]


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg class="drawing" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )


def _label(text: str, y: float) -> str:
    return f'<text class="lane" x="{LEFT - 8}" y="{y:.1f}" text-anchor="end">{escape(text)}</text>'


def _bar(scale: Scale, begin: float, end: float, y: float, kind: str, title: str) -> str:
    left = scale.x(begin)
    width = max(scale.x(end) - left, 1.5)
    return (
        f'<rect class="{kind}" x="{left}" y="{y:.1f}" width="{width:.1f}" height="{LANE}">'
        f"<title>{escape(title)}</title></rect>"
    )


def _axis(scale: Scale, top: float, bottom: float) -> list[str]:
    parts = []
    for tick in scale.ticks():
        x = scale.x(tick)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{top:.0f}" y2="{bottom:.0f}"/>')
        parts.append(
            f'<text class="tick" x="{x}" y="{bottom + 14:.0f}" text-anchor="middle">{tick:g}</text>'
        )
    return parts


def faults(record: Record) -> str:
    """Draw the faults of each broker, and when the cluster was whole."""
    scale = Scale(max(record.until, 1))
    lanes = [
        (node, layer, kinds)
        for node in (record.run.nodes if record.run else ())
        for layer, kinds in _LAYERS.items()
    ]
    height = 8 + (len(lanes) + 1) * (LANE + GAP)
    parts = _axis(scale, 4, height)
    y = 8.0
    for node, layer, kinds in lanes:
        parts.append(_label(f"{node}: {layer}", y + 12))
        for one in record.disturbances:
            if one.fault in kinds and node in one.nodes:
                end = min(one.ended_at, record.until)
                where = ", ".join(one.nodes)
                text = f"{one.fault} {one.detail} ({where}), {one.began_at:.1f} s to {end:.1f} s"
                parts.append(_bar(scale, one.began_at, end, y, f"fault {layer}", text))
        y += LANE + GAP
    parts.append(_label("whole", y + 12))
    for at in record.whole:
        x = scale.x(at)
        parts.append(f'<line class="whole" x1="{x}" x2="{x}" y1="{y}" y2="{y + LANE}"/>')
    return _svg("Faults of each broker over time, in seconds", height + 22, parts)


def operations(record: Record) -> str:
    """Draw the acknowledged publications and the deliveries a second."""
    scale = Scale(max(record.until, 1))
    nodes = record.run.nodes if record.run else ()
    rows: list[tuple[str, list[float]]] = []
    for node in nodes:
        acknowledged = [
            one.completed_at
            for one in record.publications.values()
            if one.outcome == "ok" and one.nodes[-1] == node
        ]
        rows.append((f"{node}: published", acknowledged))
        delivered = [
            one.at
            for client in record.clients.values()
            for one in client.deliveries
            if one.node == node
        ]
        rows.append((f"{node}: delivered", delivered))
    band = 34
    height = 8 + len(rows) * (band + 8)
    parts = _axis(scale, 4, height)
    for index, (name, times) in enumerate(rows):
        parts += _area(scale, name, times, 8 + index * (band + 8), band)
    return _svg("Operations of each broker over time, in seconds", height + 22, parts)


def _area(scale: Scale, name: str, times: Sequence[float], y: float, band: float) -> list[str]:
    counts = [0] * BINS
    for at in times:
        counts[min(int(at / scale.seconds * BINS), BINS - 1)] += 1
    width = scale.seconds / BINS
    highest = max([*counts, 1])
    base = y + band
    points = " ".join(
        f"{scale.x((index + 0.5) * width)},{base - count / highest * band:.1f}"
        for index, count in enumerate(counts)
    )
    rate = highest / width
    shape = f"{scale.x(0)},{base} {points} {scale.x(scale.seconds)},{base}"
    return [
        _label(name, y + 16),
        _label(f"up to {rate:,.0f}/s", y + 30),
        f'<polygon class="area" points="{shape}"><title>{escape(name)}</title></polygon>',
    ]


def clients(record: Record, violations: Sequence[Violation]) -> str:
    """Draw the broker that each client was connected to, and the violations."""
    scale = Scale(max(record.until, 1))
    broken = {one.client for one in violations}
    shown = sorted(
        (one for one in record.clients.values() if _is_shown(one) or one.name in broken),
        key=lambda one: (one.name not in broken, one.name),
    )[:CLIENTS_MAX]
    height = 8 + len(shown) * (LANE + GAP)
    parts = _axis(scale, 4, height)
    nodes = record.run.nodes if record.run else ()
    for index, client in enumerate(shown):
        y = 8 + index * (LANE + GAP)
        parts.append(_label(client.name, y + 12))
        parts += _connections(record, scale, client, nodes, y)
        parts += [_mark(scale, one, y) for one in violations if one.client == client.name]
    return _svg("Connections of each client over time, in seconds", height + 22, parts)


def _is_shown(client: Client) -> bool:
    """Return whether a client gets a lane: short-lived clients with a will are too many."""
    return any(one.is_up for one in client.connections) and not any(
        one.will for one in client.connections
    )


def _connections(
    record: Record, scale: Scale, client: Client, nodes: Sequence[str], y: float
) -> list[str]:
    parts = []
    up = [one for one in client.connections if one.is_up]
    for one, following in zip(up, [*up[1:], None], strict=True):
        until = one.ended_at
        if until == inf:  # a handle is with one broker until another one answers
            until = record.until if following is None else following.connected_at
        number = nodes.index(one.node) + 1 if one.node in nodes else 0
        session = "session present" if one.session_present else "new session"
        title = f"{client.name} at {one.node}, {one.connected_at:.1f} s to {until:.1f} s, {session}"
        parts.append(_bar(scale, one.connected_at, until, y, f"node node-{number}", title))
    return parts


def _mark(scale: Scale, violation: Violation, y: float) -> str:
    x, middle = scale.x(violation.at), y + LANE / 2
    return (
        f'<path class="broken" d="M{x - 5},{middle - 5}l10,10m0,-10l-10,10">'
        f"<title>{escape(violation.text)}</title></path>"
    )
