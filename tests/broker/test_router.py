"""RouterMachine against brute force: every subscription, every topic, `names.matches`."""

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dovetail.broker import route_cache
from dovetail.broker.other_brokers import NoPeers
from dovetail.broker.route import Group, Route
from dovetail.broker.router import Router
from dovetail.broker.session import Session
from dovetail.broker.shared_state import SharedState
from dovetail.errors import ClientError, ReasonCode
from dovetail.settings import MqttSettings
from dovetail.topics.names import matches, split_shared
from support.strategies.topics import filters, names

SESSIONS = 4

few_names = st.sampled_from(["a", "a/b", "a/b/c", "b", "$x/a", "/", "é/b"]) | names
few_filters = (
    st.sampled_from(["a", "a/b", "a/+", "a/#", "+/b", "#", "+", "$x/#", "/", "é/b"]) | filters()
)
shared_filters = st.builds("$share/{}/{}".format, st.sampled_from(["g", "h"]), few_filters)


def no_local(options: int) -> bool:
    return bool(options & 4)


class RouterMachine(RuleBasedStateMachine):
    """Subscriptions come, change and go; topics are asked for with a cache that is too small."""

    @initialize(routes_max=st.sampled_from([1, 2, 6, 100]))
    def begin(self, routes_max: int) -> None:
        limits = MqttSettings(routes_max=routes_max)
        self.router = Router(limits)
        shared = SharedState(limits)
        self.sessions = [Session(shared, number + 1, f"c{number}") for number in range(SESSIONS)]
        self.oracle: dict[tuple[int, str], tuple[int, int]] = {}

    @rule(
        who=st.integers(0, SESSIONS - 1),
        name=few_filters | shared_filters,
        options=st.sampled_from([0, 1, 2, 4, 5, 8, 10, 14]),
        identifier=st.sampled_from([0, 0, 1, 2, 300]),
    )
    def subscribe(self, who: int, name: str, options: int, identifier: int) -> None:
        made = self.router.subscribe(self.sessions[who], name, options, identifier)
        assert self.sessions[who].subscriptions[name] is made
        self.oracle[who, name] = options, identifier

    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        known = sorted(self.oracle)
        who, name = data.draw(
            st.sampled_from(known) if known else st.tuples(st.just(0), few_filters)
        )
        was_there = self.oracle.pop((who, name), None) is not None
        assert self.router.unsubscribe(self.sessions[who], name) == was_there

    @rule(who=st.integers(0, SESSIONS - 1), name=few_filters | shared_filters)
    def unsubscribe_from_anything(self, who: int, name: str) -> None:
        was_there = self.oracle.pop((who, name), None) is not None
        assert self.router.unsubscribe(self.sessions[who], name) == was_there

    @rule(topic=few_names)
    def find(self, topic: str) -> None:
        self.check(self.router.find(topic.encode()), topic)

    @rule(topics=st.lists(few_names, max_size=6))
    def prepare(self, topics: list[str]) -> None:
        self.router.prepare([topic.encode() for topic in topics])
        for topic in topics:
            self.check(self.router.find(topic.encode()), topic)

    def check(self, route: Route, topic: str) -> None:
        plain = [
            (self.sessions[who], options, identifier)
            for (who, name), (options, identifier) in self.oracle.items()
            if split_shared(name) is None and matches(name, topic)
        ]
        assert {delivery.session for delivery in route.deliveries} == {found[0] for found in plain}
        assert len(route.deliveries) == len({found[0] for found in plain})
        for origin in (None, *self.sessions):
            client_id = "" if origin is None else origin.client_id
            for delivery in route.deliveries_from(client_id):
                mine = [
                    found
                    for found in plain
                    if found[0] is delivery.session
                    and not (origin is delivery.session and no_local(found[1]))
                ]
                assert delivery.qos == max(options & 3 for _, options, _ in mine)
                assert delivery.retain_as_published == any(options & 8 for _, options, _ in mine)
                assert sorted(delivery.identifiers) == sorted(
                    identifier for _, _, identifier in mine if identifier
                )
            receivers = {
                found[0] for found in plain if not (origin is found[0] and no_local(found[1]))
            }
            assert {delivery.session for delivery in route.deliveries_from(client_id)} == receivers
        self.check_groups(route, topic)

    def check_groups(self, route: Route, topic: str) -> None:
        expected: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
        for (who, name), row in self.oracle.items():
            shared = split_shared(name)
            if shared is not None and matches(shared.filter, topic):
                expected.setdefault(shared, {})[self.sessions[who].number] = row
        found = [
            {
                number: (member.options, member.identifier)
                for number, member in group.members.items()
            }
            for group in route.groups
        ]
        assert sorted(found, key=repr) == sorted(expected.values(), key=repr)

    @invariant()
    def the_count_and_the_cache_are_bounded(self) -> None:
        if hasattr(self, "router"):
            assert self.router.count == len(self.oracle)
            routes_max = self.router._limits.routes_max
            assert len(self.router.cache) <= max(routes_max, 2)


TestRoutes = RouterMachine.TestCase
TestRoutes.settings = settings(max_examples=60, stateful_step_count=30)


def sessions(count: int) -> list[Session]:
    shared = SharedState(MqttSettings())
    return [Session(shared, number, f"c{number}") for number in range(1, count + 1)]


def test_topics_with_the_same_filters_share_a_route() -> None:
    router = Router(MqttSettings())
    (session,) = sessions(1)
    router.subscribe(session, "a/#", 0, 0)
    router.subscribe(session, "+/x", 0, 0)
    assert router.find(b"a/1") is router.find(b"a/2")
    assert router.find(b"a/x") is not router.find(b"a/1")
    assert router.find(b"nobody") is router.find(b"nobody either")


def test_a_filter_without_wildcards_touches_one_topic() -> None:
    router = Router(MqttSettings())
    one, other = sessions(2)
    router.subscribe(one, "#", 0, 0)
    topics = [b"a", b"b", b"c"]
    router.prepare(topics)
    router.subscribe(other, "b", 0, 0)
    assert sorted(router.cache.young) == [b"a", b"c"]
    router.subscribe(other, "+", 0, 0)
    assert router.cache.young == {}


def test_what_is_in_use_survives_a_flood_of_topics() -> None:
    router = Router(MqttSettings(routes_max=100))
    (session,) = sessions(1)
    router.subscribe(session, "#", 0, 0)
    for number in range(1_000):
        router.find(b"once/%d" % number)
        router.find(b"often")
    assert router.computed == 1_001


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        *((topic, ReasonCode.TOPIC_NAME_INVALID) for topic in (b"", b"a/+", b"#", b"a/a/a/a")),
        (b"a" * 21, ReasonCode.TOPIC_NAME_INVALID),
        (b"a\0", ReasonCode.MALFORMED_PACKET),
        (b"\xff", ReasonCode.MALFORMED_PACKET),
    ],
)
def test_a_topic_that_is_none_has_no_route(topic: bytes, reason: ReasonCode) -> None:
    router = Router(MqttSettings(topic_levels_max=3, topic_bytes_max=20))
    with pytest.raises(ClientError) as caught:
        router.find(topic)
    assert caught.value.reason == reason
    router.prepare([topic, b"fine"])
    assert list(router.cache.young) == [b"fine"]


class LinkStub:
    """The part of a link that a group reads."""

    def __init__(self, *, congested: bool = False) -> None:
        self.congested = congested


def group_of(*states: str) -> Group:
    router = Router(MqttSettings())
    for session, state in zip(sessions(len(states)), states, strict=True):
        if state != "away":
            session.link = LinkStub(congested=state == "congested")  # type: ignore[assignment]
        router.subscribe(session, "$share/g/a", 1, 0)
    (group,) = router.find(b"a").groups
    return group


def picks(group: Group, qos: int, count: int) -> list[int | None]:
    chosen = (group.pick(qos) for _ in range(count))
    return [None if member is None else member.session.number for member in chosen]


def test_members_take_turns() -> None:
    assert sorted(picks(group_of("here", "here", "here"), 0, 6), key=str) == [1, 1, 2, 2, 3, 3]


def test_who_can_take_it_comes_first() -> None:
    assert set(picks(group_of("away", "here", "congested"), 1, 6)) == {2}


def test_connected_members_come_before_others() -> None:
    assert set(picks(group_of("away", "congested"), 0, 4)) == {2}


def test_who_is_away_waits_for_what_can_wait() -> None:
    assert set(picks(group_of("away", "away"), 1, 4)) == {1, 2}
    assert picks(group_of("away", "away"), 0, 2) == [None, None]


class Peers(NoPeers):
    """Other brokers whose filters a test sets."""

    def __init__(self) -> None:
        self.filters: dict[str, set[str]] = {"x": set(), "y": set()}

    def search(self, topics: Sequence[bytes]) -> list[tuple[str, ...]]:
        found = {name: self.search_one(name, topics) for name in self.filters}
        return [
            tuple(name for name in found if found[name][number]) for number in range(len(topics))
        ]

    def search_one(self, name: str, topics: Sequence[bytes]) -> list[bool]:
        return [any(matches(one, topic.decode()) for one in self.filters[name]) for topic in topics]


class PeerRoutesMachine(RuleBasedStateMachine):
    """Other brokers' filters come and go; the cache never leads past one that has a subscriber."""

    @initialize(routes_max=st.sampled_from([2, 6, 1_000]), rechecked_max=st.sampled_from([0, 100]))
    def begin(self, routes_max: int, rechecked_max: int) -> None:
        self.rechecked_max = rechecked_max
        self.peers = Peers()
        self.router = Router(MqttSettings(routes_max=routes_max), peers=self.peers)

    @rule(name=st.sampled_from(["x", "y"]), some=st.sets(few_filters, max_size=3))
    def change(self, name: str, some: set[str]) -> None:
        self.peers.filters[name] ^= some
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(route_cache, "ROUTES_RECHECKED_MAX", self.rechecked_max)
            self.router.cache.peer_changed(name, self.peers.search_one)

    @rule(topics=st.lists(few_names, max_size=4))
    def find(self, topics: list[str]) -> None:
        for topic in map(str.encode, topics):
            (expected,) = self.peers.search([topic])
            assert self.router.find(topic).peers == expected


PeerRoutesMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestPeersOfRoutes = PeerRoutesMachine.TestCase


def test_routes_stay_that_a_peers_change_does_not_touch() -> None:
    peers = Peers()
    router = Router(MqttSettings(), peers=peers)
    route = router.find(b"a")
    router.find(b"b")
    peers.filters["x"].add("b")
    router.cache.peer_changed("x", peers.search_one)
    assert router.cache.young == {b"a": route}
    assert router.find(b"b").peers == ("x",)
    router.cache.clear()
    assert not router.cache.young
