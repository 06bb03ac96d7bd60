"""Where-clauses as boxes: for each attribute an interval, closed below and open above. Pure."""

from collections.abc import Mapping
from random import Random

from reliability.history import Box

DIMENSIONS = ("x", "y")
LOW, HIGH = 0, 100


def contains(box: Box | None, attributes: Mapping[str, float]) -> bool:
    """Return whether a publication with `attributes` satisfies the clause."""
    return box is None or all(
        name in attributes and low <= attributes[name] < high for name, (low, high) in box.items()
    )


def clause(box: Box) -> str:
    """Return `box` as the text of a where-clause."""
    return " and ".join(f"{low:g} <= {name} < {high:g}" for name, (low, high) in box.items())


def query(box: Box) -> str:
    """Return `box` as it stands behind a topic filter."""
    sides = (f"{name}>={low:g}&{name}<{high:g}" for name, (low, high) in box.items())
    return "?" + "&".join(sides)


def draw_box(random: Random) -> Box:
    """Draw a box that about a quarter of all points fall in."""
    names = random.sample(DIMENSIONS, random.choice([1, 2]))
    width = 25 if len(names) == 1 else 50
    box = {}
    for name in names:
        low = random.randrange(LOW, HIGH - width)
        box[name] = (float(low), float(low + width))
    return box


def draw_point(random: Random) -> dict[str, float]:
    """Draw the attributes of a publication; one of them may be missing."""
    names = DIMENSIONS if random.random() < 0.9 else random.sample(DIMENSIONS, 1)
    return {name: float(random.randrange(LOW, HIGH)) for name in names}
