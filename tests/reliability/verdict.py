"""What a checker says: how much it judged, what it excused and why, and what was violated. Pure."""

from collections import Counter
from dataclasses import dataclass, field

from reliability.promises import Promise

VIOLATIONS_KEPT_MAX = 200
"""For one promise; more are counted."""


@dataclass(frozen=True)
class Violation:
    """One broken promise, with what is needed to find its context in the history."""

    at: float
    text: str
    client: str = ""
    message: str = ""


@dataclass
class Verdict:
    promise: Promise
    judged: int = 0
    """How many times the promise could have been broken."""
    judged_by_client: Counter[str] = field(default_factory=Counter)
    """The same for each client, where the promise is made to one."""
    violated: int = 0
    excused: Counter[str] = field(default_factory=Counter)
    """Where the documentation promises less, by reason."""
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
