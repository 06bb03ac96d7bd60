"""`[matchers]`: the matchers that one command runs on this machine besides its brokers."""

from typing import Annotated

from msgspec import Struct

from dovetail.errors import ConfigError
from dovetail.limits import MATCHERS_ADD_ABOVE, WORKERS_MAX
from dovetail.settings.field import bounded
from dovetail.settings.limits import (
    MATCHERS_ADD_AFTER_SECONDS,
    MATCHERS_REMOVE_AFTER_SECONDS,
    MATCHERS_REMOVE_BELOW,
)


class MatcherSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Matchers that one command runs besides its brokers."""

    count_min: Annotated[
        int, bounded(0, WORKERS_MAX, "Matchers that are started with the brokers. 0: none.")
    ] = 0
    count_max: Annotated[
        int,
        bounded(
            0,
            WORKERS_MAX,
            "The most matchers: they are added and removed by their load. 0: always as many as "
            "count_min.",
        ),
    ] = 0
    add_above: Annotated[
        float,
        bounded(
            0.001,
            0.99,
            "A matcher is added while they are busier than this on average, a share of the time.",
        ),
    ] = MATCHERS_ADD_ABOVE
    add_after_seconds: Annotated[
        float, bounded(0, 86_400, "That has to last for this long, counted from the last change.")
    ] = MATCHERS_ADD_AFTER_SECONDS
    remove_below: Annotated[
        float,
        bounded(
            0.0005,
            0.99,
            "A matcher leaves while the others would be less busy than this without it. Less than "
            "add_above.",
        ),
    ] = MATCHERS_REMOVE_BELOW
    remove_after_seconds: Annotated[
        float, bounded(0, 86_400, "That has to last for this long, counted from the last change.")
    ] = MATCHERS_REMOVE_AFTER_SECONDS

    @property
    def count_most(self) -> int:
        return self.count_max or self.count_min

    @property
    def is_elastic(self) -> bool:
        return self.count_most > self.count_min


def parse_counts(text: str) -> tuple[int, int]:
    """Return the least and the most matchers of --matchers: a number, or two as in 1:4."""
    low, colon, high = text.partition(":")
    counts = (low, high if colon else low)
    if not all(one.isascii() and one.isdigit() and len(one) < 9 for one in counts):
        raise ConfigError(f"--matchers {text}: it takes a number, or two: 1:4 is one to four.")
    least, most = map(int, counts)
    if max(least, most) > WORKERS_MAX:
        raise ConfigError(f"--matchers {text}: there can be {WORKERS_MAX} at most.")
    if most < least:
        raise ConfigError(f"--matchers {text}: the first number is the least, and is more.")
    if most and not least:
        raise ConfigError(f"--matchers {text}: {ONE_MATCHER_NEEDED}.")
    return least, most


ONE_MATCHER_NEEDED = "there has to be one at least, which reports its load"
