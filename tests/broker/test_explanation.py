"""Explanations of attributes at a broker alone, and in a cluster with matchers."""

import pytest

from dovetail.api.reports import AttributeReport, AttributesReport
from dovetail.attributes.space import Dimension, Space
from dovetail.broker.explanation import explain_attributes
from dovetail.codec.packets import Subscribe, SubscriptionRequest
from dovetail.errors import ClientError
from support.brokers.harness import World, attributes
from support.clusters.matchers import ClusterWithMatchers
from support.clusters.simulated_cluster import SimulatedBroker

SPACE = Space(
    "traffic",
    "traffic/#",
    (Dimension("lat", -90, 90), Dimension("speed", 0, 200), Dimension("height", 0, 9, False)),
    frozenset({"road"}),
)
TOPIC = b"traffic/a"


def alone(topic: bytes, **given: str) -> AttributesReport:
    router = World(spaces=[SPACE]).broker.router
    report = explain_attributes(router, topic, given, None)
    assert not router.cache.young
    return report


def places(report: AttributesReport) -> dict[str, str]:
    return {one.name: one.place for one in report.values}


def test_values_in_the_order_of_the_space() -> None:
    report = alone(TOPIC, odd="1", road="A1", speed="200", lat="-90.5")
    assert (report.space, report.topics, report.unasked) == ("traffic", "traffic/#", "alone")
    assert report.values == (
        AttributeReport("lat", "-90.5", "below", -90, 90),
        AttributeReport("speed", "200", "inside", 0, 200),
        AttributeReport("height", "", "missing", 0, 9),
        AttributeReport("odd", "1", "unknown"),
        AttributeReport("road", "A1", "text"),
    )
    assert places(alone(TOPIC, speed="200.5"))["speed"] == "above"


def test_attributes_that_cannot_be_read() -> None:
    with pytest.raises(ClientError, match="attribute 'lat': 'north' is not a number"):
        alone(TOPIC, lat="north")


def test_no_space() -> None:
    report = alone(b"other", lat="north")
    assert (report.space, report.unasked, places(report)) == ("", "space", {"lat": "unknown"})


class MatchedWorld:
    """Two brokers; one has no clauses, and is asked about publications."""

    def __init__(self, matchers: int) -> None:
        self.cluster = ClusterWithMatchers(1, "a", "b", spaces=[SPACE])
        for number in range(matchers):
            self.cluster.add_matcher(f"m{number}")
        self.cluster.run(8)

    @property
    def here(self) -> SimulatedBroker:
        node = self.cluster.nodes["a"]
        node.wake()
        return node

    def subscribe(self, name: str, where: str) -> None:
        node = self.cluster.nodes[name]
        node.wake()
        query = f"traffic/#?{where}"
        node.client().send(Subscribe(1, [SubscriptionRequest(query)]))
        self.cluster.run(8)

    def explain(self, **given: str) -> AttributesReport:
        here = self.here
        return explain_attributes(here.broker.router, TOPIC, given, here.mesh.matcher_client)


def test_in_a_cluster() -> None:
    world = MatchedWorld(matchers=2)
    assert world.explain(lat="1").unasked == "here"
    world.subscribe("b", "lat>=10&lat<11&speed>=5&speed<7")
    publisher = world.here.client()
    before = world.here.broker.router.computed
    report = world.explain(lat="10.5", speed="6")
    assert world.here.broker.router.computed == before
    matching = report.matching
    assert (report.unasked, matching is not None) == ("", True)
    assert matching is not None
    (subject,) = matching.subjects
    assert (subject.name, subject.reason) == ("b", "asked")
    assert subject.kinds == (("lat", "speed"),)
    assert [one.dimension for one in matching.candidates] == ["lat", "speed"]
    (question,) = matching.questions
    publisher.publish(TOPIC.decode(), b"", properties=attributes(lat=10.5, speed=6))
    world.cluster.run(1)
    answered = {
        name: matcher.side.answers.points_answered
        for name, matcher in world.cluster.matchers.items()
    }
    assert answered == {"m0": 0, "m1": 0} | {question.matcher: 1}
    assert world.explain(road="A1").matching is not None
    assert world.explain(odd="1").unasked == "attributes"
    world.subscribe("b", "lat>-80")
    matching = world.explain(lat="1").matching
    assert matching is not None
    assert [one.reason for one in matching.subjects] == ["wide"]
    assert matching.questions == ()


def test_a_cluster_without_matchers() -> None:
    world = MatchedWorld(matchers=0)
    world.subscribe("b", "lat>=10&lat<11")
    assert world.explain(lat="1").unasked == "matchers"
