"""The verdict of a checker: what it judged, what it excused and why, and the violations. Pure."""

from collections import Counter
from dataclasses import dataclass, field

from reliability.promises import Promise

VIOLATIONS_KEPT_MAX = 200
"""Violations that are stored for one promise; more are only counted."""


@dataclass(frozen=True)
class Violation:
    """One case of a broken promise, with its place in the history."""

    at: float
    text: str
    client: str = ""
    message: str = ""


@dataclass
class Verdict:
    promise: Promise
    judged: int = 0
    """The number of cases in which the promise could have been broken."""
    judged_by_client: Counter[str] = field(default_factory=Counter)
    """The same for each client, for promises to single clients."""
    violated: int = 0
    excused: Counter[str] = field(default_factory=Counter)
    """Cases in which the documentation promises less, by reason."""
    violations: list[Violation] = field(default_factory=list)

    def judge(self, client: str) -> None:
        self.judged += 1
        self.judged_by_client[client] += 1

    @property
    def holds(self) -> bool:
        return not self.violated

    @property
    def word(self) -> str:
        """Return the verdict in one or two words."""
        if self.violated:
            return "broken"
        return "kept" if self.judged else "not tested"

    def violate(self, at: float, text: str, *, client: str = "", message: str = "") -> None:
        self.violated += 1
        if len(self.violations) < VIOLATIONS_KEPT_MAX:
            self.violations.append(Violation(at, text, client, message))
