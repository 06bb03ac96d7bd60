"""Evaluate access rules one topic at a time: the first rule that matches decides."""

from collections.abc import Iterable, Sequence
from itertools import product
from random import Random

from dovetail.settings import AccessRule
from dovetail.topics.names import matches

TOPICS = tuple(
    "/".join(levels) for depth in (1, 2, 3) for levels in product(("a", "b", "$x"), repeat=depth)
)
FILTERS = tuple(
    "/".join((*levels, *tail))
    for depth in (0, 1, 2)
    for levels in product(("a", "b", "$x", "+"), repeat=depth)
    for tail in ((), ("#",))
    if levels or tail
)


def is_allowed(rules: Iterable[AccessRule], user: str, action: str, topic: str) -> bool:
    """May the user publish to this topic, or receive its publications (`subscribe`)?"""
    for rule in rules:
        if rule.user in {"*", user}:
            if any(matches(one, topic) for one in (*rule.deny, *getattr(rule, f"deny_{action}"))):
                return False
            if any(matches(one, topic) for one in getattr(rule, action)):
                return True
    return False


def draw_rules(random: Random, users: Sequence[str]) -> tuple[AccessRule, ...]:
    """Draw at least one rule: without rules, everything is allowed."""

    def some() -> tuple[str, ...]:
        return tuple(random.choice(FILTERS) for _ in range(random.choice([0, 0, 1, 2])))

    def one() -> AccessRule:
        return AccessRule(
            user=random.choice(["*", *users]),
            publish=some(),
            subscribe=some(),
            deny=some() if random.random() < 0.5 else (),
            deny_publish=some() if random.random() < 0.2 else (),
            deny_subscribe=some() if random.random() < 0.2 else (),
        )

    rules = [one() for _ in range(random.randint(1, 4))]
    if random.random() < 0.7:
        rules.append(AccessRule(publish=("#", "$x/#"), subscribe=("#", "$x/#")))
    return tuple(rules)
