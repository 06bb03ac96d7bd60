"""Which subscriptions get which message: by scanning all of them, and by a broker's router."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import pyarrow as pa

from dovetail.attributes.clauses import key_of
from dovetail.attributes.grammar import parse
from dovetail.attributes.space import Space
from dovetail.attributes.space_registry import SpaceRegistry, point_with
from dovetail.broker.router import Router
from dovetail.broker.session import Session
from dovetail.broker.shared_state import SharedState
from dovetail.errors import ClientError
from dovetail.settings import MqttSettings
from dovetail.topics.names import check_name, matches, split_shared


class SentMessage(NamedTuple):
    """A message."""

    topic: str | None
    numbers: Mapping[str, float | None] | None = None
    texts: Mapping[str, str] | None = None


class SubscriptionSpec(NamedTuple):
    """A subscription."""

    filter: str
    where: str | None = None


def messages_table(messages: Sequence[SentMessage]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(range(len(messages)), pa.int64()),
            "topic": pa.array([one.topic for one in messages], pa.string()),
            "attributes": pa.array(
                [one.numbers and [*one.numbers.items()] for one in messages],
                pa.map_(pa.string(), pa.float64()),
            ),
            "texts": pa.array(
                [one.texts and [*one.texts.items()] for one in messages],
                pa.map_(pa.string(), pa.string()),
            ),
        }
    )


def subscriptions_table(subscriptions: Sequence[SubscriptionSpec]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([f"s{number}" for number in range(len(subscriptions))], pa.string()),
            "filter": pa.array([one.filter for one in subscriptions], pa.string()),
            "where": pa.array([one.where for one in subscriptions], pa.string()),
        }
    )


_read = cache(parse)


def _is_name(topic: str) -> bool:
    try:
        check_name(topic)
    except ClientError:
        return False
    return True


def match_by_scanning(
    messages: Iterable[SentMessage],
    subscriptions: Sequence[SubscriptionSpec],
    spaces: Sequence[Space],
) -> list[list[str]]:
    """Match by brute force, with `names.matches` and `WhereClause.holds`."""
    return [
        [
            f"s{number}"
            for number, wanted in enumerate(subscriptions)
            if _gets(message, wanted, spaces)
        ]
        for message in messages
    ]


def _gets(message: SentMessage, wanted: SubscriptionSpec, spaces: Sequence[Space]) -> bool:
    shared = split_shared(wanted.filter)
    inner = wanted.filter if shared is None else shared.filter
    topic = message.topic
    if topic is None or not _is_name(topic) or not matches(inner, topic):
        return False
    if wanted.where is None:
        return True
    (space,) = (space for space in spaces if matches(space.topics, topic))
    dimensions = {dimension.name for dimension in space.dimensions}
    given = {name: value for name, value in (message.numbers or {}).items() if value is not None}
    numbers = {name: value for name, value in given.items() if name in dimensions}
    if any(value in {float("inf"), float("-inf")} or value != value for value in numbers.values()):  # noqa: PLR0124
        return False
    texts = {name: text for name, text in (message.texts or {}).items() if name in space.texts}
    return _read(wanted.where).holds({**numbers, **texts})


def match_by_router(
    messages: Iterable[SentMessage],
    subscriptions: Sequence[SubscriptionSpec],
    spaces: Sequence[Space],
) -> list[list[str]]:
    """Match by the router of a live broker, with a session for each subscription."""
    limits = MqttSettings()
    known = SpaceRegistry(spaces)
    router, shared = Router(limits, known), SharedState(limits)
    for number, wanted in enumerate(subscriptions):
        session = Session(shared, number + 1, f"s{number}")
        router.subscribe(
            session, key_of(*known.parse_subscription(wanted.filter, wanted.where)), 0, 0
        )
    return [_received(router, known, message) for message in messages]


def _received(router: Router, spaces: SpaceRegistry, message: SentMessage) -> list[str]:
    try:
        topic = (message.topic or "").encode()
        route = router.find(topic)
    except ClientError:
        return []
    point = None
    space = spaces.space_of_topic(topic)
    if space is not None:
        # As user properties, which are texts.
        numbers = {name: repr(value) for name, value in (message.numbers or {}).items()}
        try:
            point = point_with(space, {**numbers, **(message.texts or {})})
        except ClientError:
            point = None
    found = route.deliveries if point is None else route.deliveries_with("sender", point)
    names = {one.session.client_id for one in found}
    return sorted(names, key=lambda name: int(name[1:]))
