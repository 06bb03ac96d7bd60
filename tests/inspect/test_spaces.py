"""The output of `dovetail spaces`."""

import msgspec

from dovetail.api.reports import SpacesReport
from dovetail.inspect.spaces import sentences
from support.brokers.web_views import spaces


def test_spaces_with_all_they_have() -> None:
    assert [*sentences(spaces())] == [
        "one has 2 spaces:",
        "  traffic: publications on traffic/#; 1,200 subscriptions with where-clauses, 1,201 boxes",
        "      lat    -90 to 90",
        "      speed  0 to 0.5, not searchable",
        "      road   a text",
        "      Fields of JSON payloads are attributes too.",
        "      Matchers share its boxes along each dimension (mpartition); policy: adaptive.",
        "  rooms: publications on rooms/+; nobody here has a where-clause for them",
        "      heat  -20 to 1e+20",
        "      Matchers hold all boxes each (full), and any of them is asked.",
    ]


def test_one_of_each() -> None:
    rooms = msgspec.structs.replace(spaces().spaces[1], subscriptions=1, boxes=1)
    lines = [*sentences(SpacesReport("one", (rooms,)))]
    assert lines[:2] == [
        "one has 1 space:",
        "  rooms: publications on rooms/+; 1 subscription with where-clauses, 1 box",
    ]


def test_shared_along_one_dimension() -> None:
    rooms = msgspec.structs.replace(spaces().spaces[1], scheme="p2p", along="heat")
    *_, last = sentences(SpacesReport("one", (rooms,)))
    assert last == "      Matchers share its boxes along heat alone (p2p)."


def test_none() -> None:
    assert [*sentences(SpacesReport("one", ()))] == [
        "one has no spaces. A table [spaces.NAME] in its configuration makes one."
    ]
