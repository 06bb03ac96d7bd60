"""What a figure is made of: panels, and lines that show configurations. Pure."""

from dataclasses import dataclass

from dovetail.papers.bluedove.configuration import Configuration


@dataclass(frozen=True)
class Line:
    """A curve: what is at each x; or one configuration, by its own seconds or matchers."""

    name: str
    points: tuple[tuple[float, Configuration], ...]
    measure: str = ""
    """If it is not the figure's."""
    is_own: bool = False
    """One configuration, whose values are by x."""


@dataclass(frozen=True)
class Panel:
    """A chart."""

    title: str
    lines: tuple[Line, ...]
    y_label: str = ""
    """If it is not the figure's."""
    unit: float = 1.0
    """Charts are in so many."""


@dataclass(frozen=True)
class Check:
    """Something that is scaled, where it can also be run in full."""

    what: str
    measure: str
    whole: Configuration
    scaled: Configuration


@dataclass(frozen=True)
class Figure:
    """The paper's, and what it is called there; or one beyond it."""

    name: str
    title: str
    x_label: str
    y_label: str
    measure: str
    panels: tuple[Panel, ...]
    along: str = "x"
    """`x`: a value for each x; `log`: the same over decades; `bars`: for each name; `time`,
    `matchers`: a line's own; `names`: a table, a line of which is a column."""
    checks: tuple[Check, ...] = ()
    names: tuple[str, ...] = ()
    """Of the rows, where it is a table."""

    @property
    def configurations(self) -> list[Configuration]:
        return [
            configuration
            for panel in self.panels
            for line in panel.lines
            for _, configuration in line.points
        ] + [one for check in self.checks for one in (check.whole, check.scaled)]
