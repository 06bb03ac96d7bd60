"""The sentences of `dovetail route`."""

from dovetail.api.reports import FilterMatch, PeerRoute, RouteReport, TopicMatches
from dovetail.inspect.route import sentences
from support.brokers.web_views import route

LATE = "It is late, or not connected."
DOWN = "It is down: at QoS 1 and 2 it is kept for it."


def test_why_it_goes_where_it_goes() -> None:
    assert [*sentences(route("a/b"))] == [
        "A publication on a/b, sent to one:",
        "  one (here): 2 subscriptions and group g, one member each",
        "      a/+  (2)",
        "      $share/g/a/#  (3)",
        "  needs: it goes there, and is needed: 1 subscription.",
        "      a/b  (1)",
        "  vain: it goes there in vain: its sketch says maybe, and nobody has subscribed.",
        "  not: it does not go there: its sketch says no.",
        f"  mute: it goes there: its sketch says maybe, and it did not answer. {LATE}",
        f"  new: it goes there: its sketch is not known yet. {DOWN}",
        "One that is to be retained goes to all of them.",
        "There is a retained message on this topic.",
    ]


def test_groups_have_members_elsewhere() -> None:
    nobody = TopicMatches((), 0, False)
    shared = TopicMatches((FilterMatch("$share/g/a", 2, "g"),), 1, False)
    peers = (
        PeerRoute("shares", "alive", "no", False, shared),
        PeerRoute("also", "alive", "maybe", True, shared),
    )
    lines = [*sentences(RouteReport("a", "one", nobody, peers))]
    assert lines[2:6] == [
        "  shares: it goes there if one of its members is picked for the group.",
        "      $share/g/a  (2)",
        "  also: it goes there, and is needed: group g, one member each.",
        "      $share/g/a  (2)",
    ]


def test_where_clauses_are_elsewhere() -> None:
    nobody = TopicMatches((), 0, False)
    clauses = TopicMatches((FilterMatch("a/# with where-clauses", 2),), 1, False)
    peers = (PeerRoute("asks", "alive", "no", False, clauses, wants_attributes=True),)
    lines = [*sentences(RouteReport("a", "one", nobody, peers))]
    assert lines[2:4] == [
        "  asks: it goes there if it has attributes, for where-clauses.",
        "      a/# with where-clauses  (2)",
    ]


def test_what_stays_on_a_broker() -> None:
    nobody = TopicMatches((), 0, False)
    peers = (PeerRoute("other", "alive", "maybe", False, nobody),)
    lines = [*sentences(RouteReport("$SYS/broker/uptime", "one", nobody, peers))]
    assert lines[2] == "  other: it does not go there: the topic stays on the broker."
    assert lines[3:] == ["What is published below $SYS stays on its broker, retained or not."]


def test_many_filters_are_counted() -> None:
    filters = tuple(FilterMatch(f"a/{number}/#", 1) for number in range(100))
    report = RouteReport("a", "one", TopicMatches(filters, 250, False))
    lines = [*sentences(report)]
    assert lines[1] == ("  one (here): 100 subscriptions, of the first 100 filters that match")
    assert lines[-1] == "      and 240 more filters"
    assert len(lines) == 13


def test_nobody() -> None:
    report = RouteReport("a", "one", TopicMatches((), 0, False))
    assert [*sentences(report)] == [
        "A publication on a, sent to one:",
        "  one (here): nobody has subscribed to it",
    ]
