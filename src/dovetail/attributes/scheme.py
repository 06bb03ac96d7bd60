"""How matchers share a space, as its configuration says. Pure.

The scheme says who holds a box, and is the same at all nodes: one that has another does not meet
the others (matcher/layout.py). The policy says which of the matchers that could answer is asked,
and is each broker's own.

    mpartition    BlueDove's: a box is held along each searchable dimension where it is narrow
    p2p           the paper's first baseline: along one dimension only, however wide it is there
    full          its second one: every matcher has every box, and any of them may be asked

In the baselines there is nothing to choose for a policy: who is asked follows from the value, or is
drawn.
"""

from dataclasses import dataclass
from enum import StrEnum

from dovetail.attributes.policies import POLICIES
from dovetail.errors import ConfigError


class Scheme(StrEnum):
    """Who holds a box."""

    MPARTITION = "mpartition"
    P2P = "p2p"
    FULL = "full"


@dataclass(frozen=True)
class Sharing:
    """Of one space."""

    scheme: Scheme = Scheme.MPARTITION
    along: str = ""
    """The one dimension of p2p; empty: the first that is searchable."""
    policy: str = "adaptive"
    """A key of `forwarding.POLICIES`."""

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ConfigError(
                f"{self.policy!r} is no policy", hint=f"There are {', '.join(POLICIES)}."
            )
        if self.along and self.scheme is not Scheme.P2P:
            raise ConfigError("only p2p shares a space along one dimension")


AS_USUAL = Sharing()
