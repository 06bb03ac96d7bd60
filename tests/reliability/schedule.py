"""Plans which faults come when, from a seed. Pure.

Rules:

- Faults are dealt from a shuffled deck, so that each kind comes before any kind comes twice as
  often.
- A node has at most one fault of its process and one of its disk at a time. The whole cluster has
  at most one fault of the network. Faults of different layers overlap, and several nodes may be
  down at once.
- Spells of trouble alternate with calm, in which the cluster must become whole again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

PROCESS = ("kill", "stop", "restart", "rolling", "clock")
NETWORK = ("cut", "one-way", "reset", "delay", "loss", "slow")
DISK = ("disk",)
KINDS = (*PROCESS, *NETWORK, *DISK)

EXPLANATIONS = {
    "kill": "kill -9, then a start",
    "stop": "SIGSTOP, then SIGCONT",
    "restart": "SIGTERM, then a start",
    "rolling": "every broker in turn is terminated and started",
    "clock": "kill -9, then a start with a wall clock that has jumped",
    "cut": "no packet passes either way, and nobody is told",
    "one-way": "packets pass in one direction only",
    "reset": "connections are reset, and new ones are refused",
    "delay": "packets take longer",
    "loss": "some packets are lost",
    "slow": "a link passes few bytes a second",
    "disk": "the disk of a broker is full, then has room again",
}

FIRST_SECONDS = 2.0
SPELL_SECONDS = 45.0
CALM_SECONDS = 12.0
GAP_SECONDS_MAX = 3.0

_JUMPS_SECONDS = (-86_400, -3_600, -60, -1, 1, 60, 3_600, 86_400)
_KILLED_WHILE_STOPPED = (0, 0, 0, 0, 1)
_DELAYS_MS = (20, 100, 400)
_LOSSES_PERCENT = (2, 10, 25)
_RATES_KBIT = (64, 256)


@dataclass(frozen=True)
class PlannedFault:
    at: float
    kind: str
    nodes: tuple[str, ...]
    """The node of the process or disk; or the node that is cut off from the rest, or two that are
    cut off from each other."""
    seconds: float
    amount: float = 0.0
    """The seconds of a jump, milliseconds of a delay, percent of a loss, kbit/s of a rate. A
    stopped process with amount 1 never continues, but is killed."""

    @property
    def detail(self) -> str:
        """Return the amount in words."""
        units = {"clock": "{:+g} s", "delay": "{:g} ms", "loss": "{:g} %", "slow": "{:g} kbit/s"}
        if self.kind == "stop" and self.amount:
            return "then kill -9"
        return units[self.kind].format(self.amount) if self.kind in units else ""


def plan(
    seed: int, seconds: float, nodes: Sequence[str], kinds: Sequence[str] = KINDS
) -> tuple[PlannedFault, ...]:
    """Return the faults of a run, by the time at which they begin."""
    random = Random(f"schedule {seed}")
    deck = _deal(random, kinds)
    busy_until: dict[str, float] = {}
    planned = []
    for begin, end in _spells(seconds):
        at = begin
        while kinds and at < end:
            fault = _draw(random, next(deck), nodes, at, end, busy_until)
            if fault is not None:
                planned.append(fault)
                at += random.uniform(0, GAP_SECONDS_MAX)
            else:
                at += random.uniform(0, GAP_SECONDS_MAX / 3)
    return tuple(planned)


def _spells(seconds: float) -> Iterator[tuple[float, float]]:
    at = FIRST_SECONDS
    while at < seconds:
        end = min(at + SPELL_SECONDS, seconds)
        yield at, end
        at = end + CALM_SECONDS


def _deal(random: Random, kinds: Sequence[str]) -> Iterator[str]:
    while True:
        yield from random.sample(kinds, len(kinds))


def _draw(
    random: Random,
    kind: str,
    nodes: Sequence[str],
    at: float,
    end: float,
    busy_until: dict[str, float],
) -> PlannedFault | None:
    """Return a fault of this kind, or None if its target already has a fault."""
    seconds = min(_draw_seconds(random), end - at)
    amount = _draw_amount(random, kind)
    order = random.sample(nodes, len(nodes))
    if kind in NETWORK:
        keys, targets = ["network"], tuple(order[: random.choice((1, 1, 2))])
    elif kind == "rolling":
        keys, targets = [f"process {node}" for node in nodes], tuple(order)
    else:
        layer = "disk" if kind in DISK else "process"
        free = [node for node in order if busy_until.get(f"{layer} {node}", 0) <= at]
        if not free:
            return None
        keys, targets = [f"{layer} {free[0]}"], (free[0],)
    if any(busy_until.get(key, 0) > at for key in keys):
        return None
    busy_until.update(dict.fromkeys(keys, at + seconds))
    return PlannedFault(round(at, 3), kind, targets, round(seconds, 3), amount)


def _draw_seconds(random: Random) -> float:
    """Draw a length: some faults end before anybody notices, others outlast every time-out."""
    draw = random.random()
    if draw < 0.5:
        return random.uniform(0.1, 2)
    return random.uniform(2, 5) if draw < 0.8 else random.uniform(6, 10)


def _draw_amount(random: Random, kind: str) -> float:
    amounts: dict[str, Sequence[int]] = {
        "stop": _KILLED_WHILE_STOPPED,
        "clock": _JUMPS_SECONDS,
        "delay": _DELAYS_MS,
        "loss": _LOSSES_PERCENT,
        "slow": _RATES_KBIT,
    }
    return float(random.choice(amounts[kind])) if kind in amounts else 0.0
