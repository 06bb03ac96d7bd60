"""The settings for how matchers share a space. Pure.

The scheme says which matchers hold a box, and is the same at all nodes: nodes with different
schemes have different layouts (matcher/layout.py). The policy says which candidate is asked, and
may differ from broker to broker.

    mpartition    BlueDove's: a box is held along each searchable dimension where it is narrow
    p2p           the paper's first baseline: along one dimension only, however wide the box is
    full          its second one: every matcher has every box, and any of them may be asked

The baselines need no policy: the value decides which matcher is asked, or chance does.
"""

from dataclasses import dataclass
from enum import StrEnum

from dovetail.attributes.policies import POLICIES
from dovetail.errors import ConfigError


class Scheme(StrEnum):
    """Which matchers hold a box."""

    MPARTITION = "mpartition"
    P2P = "p2p"
    FULL = "full"


@dataclass(frozen=True)
class SpaceSharing:
    """How matchers share one space."""

    scheme: Scheme = Scheme.MPARTITION
    along: str = ""
    """The dimension of p2p; empty: the first searchable one."""
    policy: str = "adaptive"
    """A key of `policies.POLICIES`."""

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ConfigError(
                f"{self.policy!r} is no policy", hint=f"There are {', '.join(POLICIES)}."
            )
        if self.along and self.scheme is not Scheme.P2P:
            raise ConfigError("only p2p shares a space along one dimension")


DEFAULT_SHARING = SpaceSharing()
