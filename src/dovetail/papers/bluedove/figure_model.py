"""The parts of a figure: panels, and the configurations that their curves show. Pure."""

from dataclasses import dataclass

from dovetail.papers.bluedove.run_configuration import Configuration


@dataclass(frozen=True)
class Curve:
    """A curve: one configuration for each x; or one configuration over its seconds or matchers."""

    name: str
    points: tuple[tuple[float, Configuration], ...]
    measure: str = ""
    """Empty: the figure's."""
    is_own: bool = False
    """One configuration, whose own values are by x."""


@dataclass(frozen=True)
class Panel:
    """A chart."""

    title: str
    curves: tuple[Curve, ...]
    y_label: str = ""
    """Empty: the figure's."""
    unit: float = 1.0
    """Charts show values divided by this."""


@dataclass(frozen=True)
class ScalingCheck:
    """A scaled configuration and the same in full, to compare their results."""

    subject: str
    measure: str
    whole: Configuration
    scaled: Configuration


@dataclass(frozen=True)
class Figure:
    """A figure of the paper, under its name there, or one beyond the paper."""

    name: str
    title: str
    x_label: str
    y_label: str
    measure: str
    panels: tuple[Panel, ...]
    along: str = "x"
    """The x axis. `x`: a value for each x; `log`: the same over decades; `bars`: a bar per curve;
    `time`, `matchers`: each curve's own; `names`: a table with a column for each curve."""
    checks: tuple[ScalingCheck, ...] = ()
    names: tuple[str, ...] = ()
    """The names of the rows of a table."""

    @property
    def configurations(self) -> list[Configuration]:
        return [
            configuration
            for panel in self.panels
            for curve in panel.curves
            for _, configuration in curve.points
        ] + [
            configuration for check in self.checks for configuration in (check.whole, check.scaled)
        ]
