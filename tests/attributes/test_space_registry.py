"""Subscriptions with where-clauses at one broker: what they get, alone and beside others."""

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.attributes.grammar import parse
from dovetail.attributes.space import Dimension, Space
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.attributes.where_clause import WhereClause
from dovetail.codec.packets import (
    MQTT_3_1_1,
    Ack,
    Connect,
    Publish,
    Subscribe,
    SubscriptionAck,
    Will,
)
from dovetail.codec.packets import SubscriptionRequest as Request
from dovetail.errors import ClientError, ReasonCode
from dovetail.settings import AccessRule
from support.brokers.harness import PERSISTENT, Client, World, attributes, with_attributes
from support.strategies.where_clauses import SPACE, alternatives, publications, trees, written

TRAFFIC = Space(
    "traffic",
    "traffic/#",
    (Dimension("lat", -90, 90), Dimension("lon", -180, 180), Dimension("speed", 0, 200)),
    frozenset({"road"}),
)
SENSORS = Space("sensors", "sensor/+/reading", (Dimension("value", 0, 100),), json_fields=True)
BOTH = (TRAFFIC, SENSORS)
REFUSED = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR


def world(**fields: object) -> World:
    return World(spaces=BOTH, **fields)  # type: ignore[arg-type]


def report(client: Client, payload: bytes, topic: str = "traffic/a", **values: object) -> None:
    client.publish(topic, payload, properties=attributes(**values))


# What is wanted --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic_filter", "where"),
    [
        ("traffic/#", "40 <= lat < 41 and speed < 25"),
        ("traffic/#?lat>=40&lat<41&speed<25", None),
        ("traffic/a?lat>=40&lat<41&speed<25", None),
        ("$share/g/traffic/#?lat>=40&lat<41&speed<25", None),
        ("$share/g/traffic/+", "40 <= lat < 41 and speed < 25"),
    ],
)
def test_a_clause(topic_filter: str, where: str | None) -> None:
    everything = world()
    client, publisher = everything.client("c"), everything.client("p")
    assert client.subscribe(topic_filter, where=where) == [0]
    report(publisher, b"yes", lat=40, speed=24.9)
    report(publisher, b"on the border", lat=41, speed=24.9)
    report(publisher, b"too fast", lat=40, speed=25)
    report(publisher, b"no speed", lat=40)
    report(publisher, b"beyond bounds", lat=40.5, speed=-3)
    publisher.publish("traffic/a", b"nothing")
    publisher.publish("traffic/a", b"at QoS 1", 1, properties=attributes(lat=40, speed="1e1"))
    assert client.payloads() == [b"yes", b"beyond bounds", b"at QoS 1"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(trees, min_size=1, max_size=4),
    st.lists(publications, min_size=1, max_size=4),
    st.randoms(),
)
def test_what_clients_write_is_what_they_get(
    drawn: list[object], published: list[dict[str, float | str]], random: object
) -> None:
    everything = World(spaces=[SPACE])
    publisher = everything.client("p")
    clients: list[tuple[Client, WhereClause]] = []
    for tree in drawn:
        if alternatives(tree) > 16:  # type: ignore[arg-type]
            continue
        text = written(tree, random)  # type: ignore[arg-type]
        client = everything.client(f"c{len(clients)}")
        try:
            where = parse(text)
        except ClientError:
            assert client.subscribe("drawn/#", where=text) == [REFUSED]
            continue
        assert client.subscribe("drawn/#", where=text) == [0]
        clients.append((client, where))
    for number, values in enumerate(published):
        shown = {
            name: value if isinstance(value, str) else repr(value) for name, value in values.items()
        }
        publisher.publish("drawn/x", b"%d" % number, properties=with_attributes(shown))
    for client, where in clients:
        wanted = [b"%d" % n for n, values in enumerate(published) if where.holds(values)]
        assert client.payloads() == wanted


def test_fields_of_a_json_payload() -> None:
    everything = world()
    client, publisher = everything.client("c"), everything.client("p")
    all_of_it = everything.client("all")
    assert client.subscribe("sensor/+/reading?value>25", qos=1) == [1]
    assert all_of_it.subscribe("sensor/#", qos=1) == [1]
    hot, cold = json.dumps({"value": 30}).encode(), json.dumps({"value": 20}).encode()
    for qos in (0, 1, 2):
        publisher.publish("sensor/1/reading", hot, qos)
        publisher.publish("sensor/1/reading", cold, qos)
    # A user property counts where both have one.
    publisher.publish("sensor/1/reading", hot, properties=attributes(value=1))
    publisher.publish("sensor/1/other", hot)
    publisher.publish("sensor/1/reading", b"no JSON")
    assert [message.payload for message in client.messages()] == [hot] * 3
    assert len(all_of_it.messages()) == 9


def test_spaces_do_not_see_each_other() -> None:
    everything = world()
    client = everything.client("c")
    for topic_filter in ("#", "+/a", "sensor/#", "other/#", "sensor/1/+", "$SYS/#"):
        assert client.subscribe(topic_filter, where="speed < 3") == [REFUSED], topic_filter
        assert client.why is not None
        assert "no space governs all topics" in client.why
    assert client.subscribe("sensor/1/reading", where="speed < 3") == [REFUSED]
    assert client.why is not None
    assert "space 'sensors' has no attribute 'speed'" in client.why
    assert client.subscribe("other/what?ever", "other/?", "sensor/1/what?value>1") == [0, 0, 0]


# With all of MQTT ------------------------------------------------------------------------------


def test_with_and_without_a_clause_it_comes_once() -> None:
    everything = world()
    client, publisher = everything.client("c"), everything.client("p")
    client.subscribe("traffic/#", identifier=1)
    client.subscribe("traffic/#", where="speed < 25", qos=1, identifier=2)
    client.subscribe("traffic/+", where="speed < 10 or lat >= 0", qos=2, identifier=3)
    for speed in (5, 15, 30):
        publisher.publish("traffic/a", b"%d" % speed, 2, properties=attributes(speed=speed))
        publisher.take()
    got = [(one.payload, one.qos, one.identifiers) for one in client.messages()]
    assert got == [(b"5", 2, (1, 2, 3)), (b"15", 1, (1, 2)), (b"30", 0, (1,))]


def test_each_is_ended_as_it_was_named() -> None:
    everything = world()
    client, publisher = everything.client("c"), everything.client("p")
    client.subscribe("traffic/#")
    client.subscribe("traffic/#", where="speed < 25")
    client.subscribe("traffic/#?speed>100")
    assert client.unsubscribe("traffic/#", where="lat < 25") == [ReasonCode.NO_SUBSCRIPTION_EXISTED]
    assert client.unsubscribe("traffic/#") == [0]
    for speed in (5, 50, 150):
        report(publisher, b"%d" % speed, speed=speed)
    assert client.payloads() == [b"5", b"150"]
    # However it is written.
    assert client.unsubscribe("traffic/#", where="25 > speed") == [0]
    assert client.unsubscribe("traffic/#", where="speed > 100.0") == [0]
    for speed in (5, 50, 150):
        report(publisher, b"%d" % speed, speed=speed)
    assert client.payloads() == []
    assert everything.broker.router.count == 0


def test_subscribed_again_it_has_new_options() -> None:
    everything = world()
    client, publisher = everything.client("c"), everything.client("p")
    client.subscribe("traffic/#", where="speed < 25", identifier=7)
    assert client.subscribe("traffic/#", where="speed<2.5e1", qos=1, identifier=8) == [1]
    publisher.publish("traffic/a", b"x", 1, properties=attributes(speed=1))
    (message,) = client.messages()
    assert (message.qos, message.identifiers) == (1, (8,))


def test_retained_messages_are_tested_against_the_clause() -> None:
    everything = world()
    publisher = everything.client("p")
    for speed in (5, 50):
        publisher.publish(
            f"traffic/{speed}", b"%d" % speed, retain=True, properties=attributes(speed=speed)
        )
    publisher.publish("traffic/none", b"none", retain=True)
    publisher.publish("traffic/odd", b"odd", retain=True, properties=attributes(speed="fast"))
    client = everything.client("c")
    client.subscribe("traffic/#", where="speed < 25")
    (message,) = client.messages()
    assert (message.payload, message.retain) == (b"5", True)
    client.subscribe("traffic/#", where="speed >= 25", retain_handling=2)
    assert client.messages() == []


def test_no_local() -> None:
    everything = world()
    client, other = everything.client("c"), everything.client("o")
    client.subscribe("traffic/#", where="speed < 25", no_local=True)
    for one in (client, other):
        report(one, one.connect_packet.client_id.encode(), speed=1)
    assert client.payloads() == [b"o"]
    client.subscribe("traffic/#")
    report(client, b"mine", speed=1)
    assert client.payloads() == [b"mine"]


def test_one_member_of_a_group_gets_it() -> None:
    everything = world()
    publisher = everything.client("p")
    slow = [everything.client(f"s{n}") for n in range(3)]
    fast = [everything.client(f"f{n}") for n in range(2)]
    for client in slow:
        client.subscribe("$share/g/traffic/#", where="speed < 25")
    for client in fast:  # the same name and filter, and yet another group
        client.subscribe("$share/g/traffic/#", where="speed >= 25")
    for speed in range(50):
        report(publisher, b"%d" % speed, speed=speed)
    got = [Counter(client.payloads()) for client in (*slow, *fast)]
    assert sum(got[:3], Counter()) == Counter(b"%d" % speed for speed in range(25))
    assert sum(got[3:], Counter()) == Counter(b"%d" % speed for speed in range(25, 50))
    assert all(len(one) > 5 for one in got)
    for client in slow:
        client.unsubscribe("$share/g/traffic/#", where="speed < 25")
    report(publisher, b"slow", speed=1)
    report(publisher, b"fast", speed=100)
    assert sum(map(len, (client.payloads() for client in (*slow, *fast)))) == 1


def test_many_clauses_on_one_filter() -> None:
    everything = world()
    client, publisher = everything.client("c"), everything.client("p")
    for number in range(200):
        client.subscribe(
            "traffic/#", where=f"{number} <= speed < {number + 10}", identifier=number + 1
        )
    report(publisher, b"x", speed=50.5)
    (message,) = client.messages()
    assert message.identifiers == tuple(range(42, 52))


def test_a_will_has_attributes() -> None:
    everything = world()
    client = everything.client("c")
    client.subscribe("traffic/#", where="speed < 25")
    for speed in (10, 30):
        will = Will(b"traffic/a", b"%d" % speed, properties=attributes(speed=speed))
        everything.client(f"w{speed}", will=will).lose()
    assert client.payloads() == [b"10"]


def test_queues_and_restarts() -> None:
    everything = world()
    client = everything.client("c", **PERSISTENT)
    client.subscribe("traffic/#", where='speed < 25 and road == "A1"', qos=1)
    client.subscribe("$share/g/traffic/#", where="speed >= 100", qos=1)
    client.lose()
    publisher = everything.client("p")
    publisher.publish("traffic/a", b"one", 1, properties=attributes(speed=1, road="A1"))
    publisher.publish("traffic/a", b"A2", 1, properties=attributes(speed=1, road="A2"))
    again = everything.crash(spaces=BOTH)
    publisher = again.client("p")
    publisher.publish("traffic/a", b"two", 1, properties=attributes(speed=1, road="A1"))
    publisher.publish("traffic/a", b"three", 1, properties=attributes(speed=100))
    client = again.client("c", **PERSISTENT)
    assert [one.payload for one in client.early if isinstance(one, Publish)] == [
        b"one",
        b"two",
        b"three",
    ]


def test_nobody_matches() -> None:
    everything = world()
    client, publisher = everything.client("c"), everything.client("p")
    client.subscribe("traffic/#", where="speed < 25")
    for speed, reason in ((30, ReasonCode.NO_MATCHING_SUBSCRIBERS), (20, 0)):
        publisher.publish("traffic/a", b"", 1, properties=attributes(speed=speed))
        answer = publisher.take_one()
        assert isinstance(answer, Ack)
        assert answer.reason == reason


# Spaces change ---------------------------------------------------------------------------------


def test_a_space_goes_and_comes_back() -> None:
    everything = world()
    client, publisher = everything.client("c"), everything.client("p")
    client.subscribe("traffic/#", where="speed < 25")
    client.subscribe("$share/g/traffic/#", where="speed < 25")
    client.subscribe("traffic/#", qos=1)
    everything.broker.change_spaces(SpaceRegistry([SENSORS]))
    report(publisher, b"gone", speed=1)
    assert client.payloads() == [b"gone"]  # once: without a clause
    assert client.subscribe("traffic/#", where="speed < 30") == [REFUSED]
    everything.broker.change_spaces(SpaceRegistry(BOTH))
    report(publisher, b"back", speed=1)
    assert client.payloads() == [b"back", b"back"]  # of the group as well
    everything.broker.change_spaces(SpaceRegistry())
    assert client.unsubscribe("traffic/#", where="speed < 25") == [0]
    assert client.unsubscribe("$share/g/traffic/#?speed<25") == [0]
    assert everything.broker.router.count == 1


def test_a_space_gains_and_loses_attributes() -> None:
    everything = world()
    client, publisher = everything.client("c"), everything.client("p")
    for number in range(50):
        client.subscribe("traffic/#", where=f"speed < {number}")
    client.subscribe("traffic/#", where="lat > 3", identifier=9)
    less = Space("traffic", "traffic/#", (Dimension("lat", -90, 90),))
    more = Space("traffic", "traffic/#", (*TRAFFIC.dimensions, Dimension("age", 0, 9)))
    for space, both in ((less, False), (more, True), (TRAFFIC, True)):
        everything.broker.change_spaces(SpaceRegistry([space]))
        report(publisher, b"speed", speed=10)
        report(publisher, b"lat", lat=10)
        assert client.payloads() == ([b"speed", b"lat"] if both else [b"lat"])


def test_a_folder_outlives_a_start_without_its_space() -> None:
    everything = world()
    client = everything.client("c", **PERSISTENT)
    client.subscribe("traffic/#", where="speed < 25", qos=1)
    without = everything.crash()
    client = without.client("c", **PERSISTENT)
    report(without.client("p"), b"unseen", speed=1)
    assert client.payloads() == []
    again = without.crash(spaces=BOTH)
    client = again.client("c", **PERSISTENT)
    report(again.client("p"), b"seen", speed=1)
    assert client.payloads() == [b"seen"]


# Bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("speed <", "speed <\n       ^"),
        ("sped < 3", "is it 'speed'?"),
        ("speed < 3 and speed > 4", "speed"),
        ("speed < nan", "^"),
        ("speed < inf", "^"),
        ("road < 3", "'road' is a text"),
        ('speed == "fast"', "'speed' is a number"),
        ("", "where-clause"),
        ("(" * 100 + "speed < 3" + ")" * 100, "where-clause"),
        ("speed < 3 or " * 500 + "speed < 4", "where-clause"),
    ],
)
def test_clauses_that_mean_nothing(where: str, said: str) -> None:
    client = world().client("c")
    assert client.subscribe("traffic/#", where=where) == [REFUSED]
    assert client.why is not None
    assert said in client.why
    assert not client.is_closed
    assert client.subscribe("traffic/#", where="speed < 3") == [0]


def test_one_refused_does_not_hold_up_others() -> None:
    client = world().client("c")
    assert client.subscribe("traffic/#", "other/#", where="speed < 3") == [0, REFUSED]
    assert client.subscribe("traffic/#?speed<x", "traffic/+", "traffic/#?speed<4") == [
        REFUSED,
        0,
        0,
    ]
    assert client.subscribe("traffic/#?speed<4", where="speed < 3") == [REFUSED]


def test_two_clauses_in_one_packet() -> None:
    client = world().client("c")
    twice = (("where", "speed < 3"), ("where", "speed < 4"))
    client.send(Subscribe(9, [Request("traffic/#")], 0, twice))
    answer = client.take_one()
    assert isinstance(answer, SubscriptionAck)
    assert answer.reasons == [REFUSED]
    assert "joined by `and`" in (answer.reason_string or "")


@pytest.mark.parametrize("topic_filter", ["other/#?speed<3", "other/+?x=1", "a/#?b"])
def test_a_query_where_no_space_is(topic_filter: str) -> None:
    client = world().client("c")
    assert client.subscribe(topic_filter) == [ReasonCode.TOPIC_FILTER_INVALID]
    assert not client.is_closed


def test_clients_of_3_1_1() -> None:
    everything = world()
    client = everything.client("c", version=MQTT_3_1_1)
    assert client.subscribe("traffic/#?speed<25", "traffic/#?speed<", "other/#?x<1") == [
        0,
        0x80,
        0x80,
    ]
    publisher = everything.client("p")
    report(publisher, b"slow", speed=3)
    report(publisher, b"fast", speed=30)
    assert client.payloads() == [b"slow"]
    old = everything.client("o", version=MQTT_3_1_1)
    assert client.subscribe("sensor/+/reading?value>1") == [0]
    old.publish("sensor/1/reading", b"no JSON", 1)
    answer = old.take_one()  # it has no word for no, and others may want it
    assert isinstance(answer, Ack)
    old.publish("sensor/1/reading", b'{"value": 2}', 1)
    assert client.payloads() == [b'{"value": 2}']


@pytest.mark.parametrize("value", ["fast", "nan", "inf", "-inf", "1e999", "", "0x10", "1_000"])
def test_attributes_that_cannot_be_read(value: str) -> None:
    everything = world()
    client, publisher, plain = (everything.client(name) for name in "cpo")
    client.subscribe("traffic/#", where="speed < 1e300")
    plain.subscribe("traffic/#")
    for qos in (1, 2):
        publisher.publish("traffic/a", b"x", qos, properties=attributes(speed=value))
        answer = publisher.take_one()
        assert isinstance(answer, Ack)
        assert answer.reason == REFUSED
        assert answer.reason_string is not None
        assert "'speed'" in answer.reason_string
    assert plain.payloads() == []
    # At QoS 0 there is no answer: plain subscribers of the topic get it, and no clause holds.
    report(publisher, b"y", speed=value)
    assert plain.payloads() == [b"y"]
    assert client.payloads() == []
    assert everything.shared.counters.attributes_unreadable == 3
    publisher.publish("sensor/1/reading", b"[1]", 1)
    answer = publisher.take_one()
    assert isinstance(answer, Ack)
    assert answer.reason == ReasonCode.PAYLOAD_FORMAT_INVALID


def test_who_wants_no_sentences_gets_none() -> None:
    client = Client(world(), "c")
    client.connect_packet = Connect(version=5, client_id="c", wants_problem_information=False)
    client.connect()
    assert client.subscribe("traffic/#", where="speed <") == [REFUSED]
    assert client.why is None


def test_a_sentence_that_is_too_long_for_the_client_is_left_out() -> None:
    """[MQTT-3.4.2-2], [MQTT-3.9.2-1]"""
    client = world().client("c", packet_bytes_max=60)
    assert client.subscribe("traffic/#", where="speed < x") == [REFUSED]
    assert client.why is None
    client.publish("traffic/a", b"", 1, properties=attributes(speed="x" * 40))
    answer = client.take_one()
    assert isinstance(answer, Ack)
    assert (answer.reason, answer.reason_string) == (REFUSED, None)


def test_limits_count_clauses() -> None:
    client = world(subscriptions_bytes_per_session_max=100).client("c")
    for number in range(100):
        reasons = client.subscribe("traffic/#", where=f"speed < {number}")
        if reasons != [0]:
            break
    assert reasons == [ReasonCode.QUOTA_EXCEEDED]
    assert 2 < number < 10


def numbers(first: int, count: int) -> str:
    return f"speed in ({', '.join(map(str, range(first, first + count)))})"


def test_limits_count_boxes() -> None:
    everything = world(subscriptions_per_session_max=100, subscriptions_max=150)
    client, other = everything.client("c"), everything.client("o")
    assert client.subscribe("traffic/#", where=numbers(0, 64)) == [0]
    assert client.subscribe("traffic/#", where=numbers(64, 64)) == [ReasonCode.QUOTA_EXCEEDED]
    assert client.why is not None
    assert "a session may have 100 here, and this one counts as 64: its boxes" in client.why
    assert client.subscribe("traffic/#", where=numbers(64, 36)) == [0]
    assert client.subscribe("traffic/a") == [ReasonCode.QUOTA_EXCEEDED]
    assert client.why == "there is no room for more subscriptions: a session may have 100 here"
    assert client.subscribe("traffic/#", where=numbers(0, 64)) == [0]  # which there is
    assert other.subscribe("traffic/#", where=numbers(0, 51)) == [ReasonCode.QUOTA_EXCEEDED]
    assert other.why is not None
    assert "the broker takes 150" in other.why
    assert other.subscribe("traffic/#", where=numbers(0, 50)) == [0]
    assert client.unsubscribe("traffic/#", where=numbers(64, 36)) == [0]
    assert client.subscribe("$share/g/traffic/#", where=numbers(0, 36)) == [0]
    client.disconnect()
    assert other.subscribe("traffic/#", where=numbers(0, 50)) == [0]
    assert everything.broker.router.boxes == 50


def test_one_clause_for_thousands_of_filters_is_read_once() -> None:
    """Parsing takes milliseconds, and all other clients would wait."""
    client = world().client("c")
    filters = [f"traffic/{number}" for number in range(1_000)]
    long = " and ".join(["(speed < 25)"] * 240)
    assert client.subscribe(*filters, where=long) == [0] * 1_000
    assert client.link is not None
    session = client.link.session
    assert session is not None
    assert len({id(one.clause) for one in session.subscriptions.values()}) == 1
    assert client.unsubscribe(*filters, where=long) == [0] * 1_000
    assert client.subscribe(*filters, where=long + " and") == [REFUSED] * 1_000
    assert client.why is not None
    assert client.why.count("where-clause: it ends") == 1
    client.unsubscribe(*filters, where=long + " and")


def test_rules_are_about_the_filter() -> None:
    rules = (AccessRule(subscribe=("traffic/a",)),)
    client = world(rules=rules).client("c")
    assert client.subscribe("traffic/a?speed<3", "traffic/#?speed<3") == [
        0,
        ReasonCode.NOT_AUTHORIZED,
    ]
