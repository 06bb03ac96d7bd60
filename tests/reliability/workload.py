"""Plans what clients do in a run, from a seed. Pure.

Topics: `t/PUBLISHER/0` and `/1` for plain messages, `s/PUBLISHER` for messages with attributes,
`r/NUMBER` for retained messages, which several publishers write, `w/CLIENT` for wills, and
`e/CLIENT` for clients that hear all publishers but themselves.

A client **stays** if it returns to one broker, and **roams** if it draws another one each time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from reliability.boxes import draw_box
from reliability.history import Box

MQTT_3, MQTT_5 = 4, 5
RETAINED_TOPICS = 8
RATE = 120.0
"""Publications a second, of all clients together."""

_STAYING_LOSS_SECONDS = 25.0
_ROAMING_LOSS_SECONDS = 8.0
_STAYING_PATIENCE_SECONDS = 30.0
_ROAMING_PATIENCE_SECONDS = 4.0
_SEEDS = 1 << 32


@dataclass(frozen=True)
class PublisherPlan:
    topics: tuple[str, ...]
    qos: int
    share: float
    """Its share of all publications."""
    retain: bool = False
    has_attributes: bool = False


@dataclass(frozen=True)
class SubscriberPlan:
    filter: str
    qos: int
    no_local: bool = False
    group: str = ""
    where: Box | None = None


@dataclass(frozen=True)
class ClientPlan:
    name: str
    version: int
    home: str
    roams: bool
    seed: int
    publisher_plan: PublisherPlan | None = None
    subscriber_plan: SubscriberPlan | None = None
    is_transient: bool = False
    """It has no persistent session, subscribes, unsubscribes and leaves."""
    is_short_lived: bool = False
    """It connects often and briefly, each time under a new name and with a will."""
    is_handle: bool = False
    """It polls over HTTP."""

    @property
    def loss_seconds(self) -> float:
        """Return the mean time until it loses or leaves its connection."""
        return _ROAMING_LOSS_SECONDS if self.roams else _STAYING_LOSS_SECONDS

    @property
    def patience_seconds(self) -> float:
        """Return how long it waits for a silent broker."""
        return _ROAMING_PATIENCE_SECONDS if self.roams else _STAYING_PATIENCE_SECONDS


@dataclass(frozen=True)
class Workload:
    clients: tuple[ClientPlan, ...]
    retained_topics: tuple[str, ...]


def plan(seed: int, nodes: Sequence[str]) -> Workload:
    """Return what clients do in the run with this seed."""
    random = Random(f"workload {seed}")
    retained = tuple(f"r/{number}" for number in range(RETAINED_TOPICS))
    makers = (_publishers, _retainers, _subscribers, _groups, _clauses, _others)
    clients = tuple(client for make in makers for client in make(random, nodes))
    return Workload(clients, retained)


def _client(
    random: Random, nodes: Sequence[str], name: str, home: str = "", **fields: object
) -> ClientPlan:
    """Make a client. Without a home it roams."""
    return ClientPlan(
        name,
        fields.pop("version", random.choice((MQTT_3, MQTT_5))),  # type: ignore[arg-type]
        home or random.choice(nodes),
        roams=not home,
        seed=random.randrange(_SEEDS),
        **fields,  # type: ignore[arg-type]
    )


def _publishers(random: Random, nodes: Sequence[str]) -> Iterator[ClientPlan]:
    for qos in (0, 1, 2):
        places = [(f"writer-{qos}-{home}", home) for home in nodes]
        places += [(f"rover-{qos}-{index}", "") for index in range(1 + bool(qos))]
        for name, home in places:
            publisher_plan = PublisherPlan((f"t/{name}/0", f"t/{name}/1"), qos, share=3.0)
            yield _client(random, nodes, name, home, publisher_plan=publisher_plan)
    for home in nodes:
        name = f"sensor-{home}"
        publisher_plan = PublisherPlan(
            (f"s/{name}",), random.choice((1, 2)), 2.0, has_attributes=True
        )
        yield _client(random, nodes, name, home, publisher_plan=publisher_plan)


def _retainers(random: Random, nodes: Sequence[str]) -> Iterator[ClientPlan]:
    """Make publishers of retained messages: all write the same topics."""
    topics = tuple(f"r/{number}" for number in range(RETAINED_TOPICS))
    for qos, home in enumerate(nodes):
        publisher_plan = PublisherPlan(topics, qos % 3, share=1.0, retain=True)
        yield _client(random, nodes, f"retainer-{home}", home, publisher_plan=publisher_plan)


def _subscribers(random: Random, nodes: Sequence[str]) -> Iterator[ClientPlan]:
    for home in nodes:
        for qos, topic_filter in ((0, "t/+/1"), (1, "t/#"), (2, "t/+/0")):
            subscriber_plan = SubscriberPlan(topic_filter, qos)
            yield _client(
                random, nodes, f"reader-{qos}-{home}", home, subscriber_plan=subscriber_plan
            )
    for qos, topic_filter in ((1, "t/+/0"), (2, "t/+/1"), (1, "r/#")):
        name = f"roamer-{qos}-{topic_filter[0]}"
        yield _client(random, nodes, name, subscriber_plan=SubscriberPlan(topic_filter, qos))
    for home in nodes[:2]:
        yield _client(
            random, nodes, f"watcher-{home}", home, subscriber_plan=SubscriberPlan("w/#", 2)
        )


def _groups(random: Random, nodes: Sequence[str]) -> Iterator[ClientPlan]:
    for qos in (1, 2):
        for home in nodes:
            subscriber_plan = SubscriberPlan(f"t/+/{qos - 1}", qos, group=f"workers-{qos}")
            yield _client(
                random, nodes, f"worker-{qos}-{home}", home, subscriber_plan=subscriber_plan
            )


def _clauses(random: Random, nodes: Sequence[str]) -> Iterator[ClientPlan]:
    for index, home in enumerate((*nodes, random.choice(nodes))):
        subscriber_plan = SubscriberPlan("s/#", random.choice((1, 2)), where=draw_box(random))
        yield _client(random, nodes, f"chooser-{index}", home, subscriber_plan=subscriber_plan)


def _others(random: Random, nodes: Sequence[str]) -> Iterator[ClientPlan]:
    home = random.choice(nodes)
    for name in ("echo-1", "echo-2"):
        yield _client(
            random,
            nodes,
            name,
            home,
            version=MQTT_5,
            publisher_plan=PublisherPlan((f"e/{name}",), 1, share=1.0),
            subscriber_plan=SubscriberPlan("e/#", 1, no_local=True),
        )
    for index in range(2):
        name = f"transient-{index}"
        subscriber_plan = SubscriberPlan(f"t/+/{index}", random.choice((1, 2)))
        yield _client(random, nodes, name, subscriber_plan=subscriber_plan, is_transient=True)
    for index in range(4):
        yield _client(random, nodes, f"short-lived-{index}", is_short_lived=True)
    for name, home, topic_filter in (
        ("handle-stays", random.choice(nodes), "t/+/0"),
        ("handle-roams", "", "t/+/1"),
    ):
        subscriber_plan = SubscriberPlan(topic_filter, 1)
        yield _client(random, nodes, name, home, subscriber_plan=subscriber_plan, is_handle=True)
