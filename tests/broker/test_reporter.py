"""Reports of a broker about its spaces and the subscriptions in them."""

from dovetail.api.reports import DimensionReport, SpaceReport
from dovetail.attributes.space import Dimension, Space
from dovetail.attributes.space_registry import SpaceRegistry
from dovetail.broker.reporter import Reporter
from support.brokers.harness import World

TRAFFIC = Space(
    "traffic",
    "traffic/#",
    (Dimension("lat", -90, 90), Dimension("speed", 0, 200, is_searchable=False)),
    frozenset({"road", "kind"}),
    json_fields=True,
)
ROOMS = Space("rooms", "rooms/+", (Dimension("heat", -20, 50),))


def counts(reporter: Reporter) -> dict[str, tuple[int, int]]:
    """Return for each space the numbers of subscriptions with clauses and of their boxes."""
    return {one.name: (one.subscriptions, one.boxes) for one in reporter.spaces().spaces}


def test_spaces_are_told_with_all_they_have() -> None:
    report = Reporter(World(spaces=[TRAFFIC]).broker, "one", 0.0).spaces()
    assert report.asked == "one"
    assert report.spaces == (
        SpaceReport(
            "traffic",
            "traffic/#",
            (DimensionReport("lat", -90, 90, True), DimensionReport("speed", 0, 200, False)),
            ("kind", "road"),
            True,
            0,
            0,
        ),
    )


def test_clauses_that_hold_are_counted_where_attributes_are_said() -> None:
    world = World(spaces=[TRAFFIC])
    reporter = Reporter(world.broker, "one", 0.0)
    one, other = world.client("one"), world.client("other")
    one.subscribe("traffic/#")
    one.subscribe("traffic/#", where="lat < 1")
    other.subscribe("traffic/#", where="lat < 2")
    other.subscribe("$share/g/traffic/#", where="lat < 9")

    def found(**attributes: str) -> dict[str, tuple[int, int | None]]:
        matches = reporter.matches(b"traffic/a", attributes)
        return {match.filter: (match.subscribers, match.holding) for match in matches.filters}

    plain, clauses = "traffic/#", "traffic/# with where-clauses"
    groups = f"{clauses} of groups"
    assert found() == {plain: (1, None), clauses: (2, None), groups: (1, None)}
    assert found(lat="1.5") == {plain: (1, None), clauses: (2, 1), groups: (1, 1)}
    for attributes in ({"odd": "1"}, {"lat": "north"}):
        assert found(**attributes) == {plain: (1, None), clauses: (2, 0), groups: (1, 0)}


def test_clauses_are_counted_where_they_are() -> None:
    world = World(spaces=[TRAFFIC, ROOMS])
    reporter = Reporter(world.broker, "one", 0.0)
    one, other = world.client("one"), world.client("other")
    one.subscribe("traffic/#", where="lat < 1 or speed < 1")
    one.subscribe("traffic/a?speed<3")
    one.subscribe("rooms/+")
    for client in (one, other):  # a group is one, whoever is in it
        client.subscribe("$share/g/traffic/#", where="lat in (1, 2, 3)")
    assert counts(reporter) == {"traffic": (3, 6), "rooms": (0, 0)}
    other.unsubscribe("$share/g/traffic/#", where="lat in (1, 2, 3)")
    one.unsubscribe("traffic/#", where="lat < 1 or speed < 1")
    assert counts(reporter) == {"traffic": (2, 4), "rooms": (0, 0)}


def test_a_space_that_comes_back_has_its_clauses_again() -> None:
    world = World(spaces=[TRAFFIC, ROOMS])
    reporter = Reporter(world.broker, "one", 0.0)
    world.client("one").subscribe("traffic/#", where="lat < 1 or speed < 1")
    world.broker.change_spaces(SpaceRegistry([ROOMS]))
    assert counts(reporter) == {"rooms": (0, 0)}
    world.broker.change_spaces(SpaceRegistry([ROOMS, TRAFFIC]))
    assert counts(reporter) == {"rooms": (0, 0), "traffic": (1, 2)}
