"""The views that the HTTP pages read, with fixed reports. A test may replace each of them."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

from dovetail.api.reports import (
    ClusterReport,
    DimensionReport,
    DrainReport,
    FilterMatch,
    MatcherReport,
    NodeEntry,
    NodeReport,
    PartReport,
    PeerReport,
    PeerRoute,
    PlanReport,
    PlanRequest,
    RouteReport,
    SegmentReport,
    SketchReport,
    SpaceReport,
    SpacesReport,
    TopicMatches,
)
from dovetail.errors import ClientError, ReasonCode
from dovetail.stats import Counters, Gauges
from dovetail.web import HttpCredentials, Views

SKETCH = SketchReport(bits=80_000, elements=1_000, fill=0.25, false_positive_rate=0.001)
PEER = PeerReport(
    name="other",
    address="127.0.0.1:7884",
    state="alive",
    is_connected=True,
    is_sketch_known=True,
    owed_messages=3,
    owed_bytes=2_500,
    forwarded=70,
    sketch_bits=40_960,
    sketch_fill=0.125,
)


MATCHER = NodeReport(
    name="matcher",
    version="0.1.0",
    roles=("matcher",),
    uptime_seconds=10.0,
    counters={},
    gauges={},
    matcher=MatcherReport(
        "serving",
        11,
        22,
        33,
        4,
        0.5,
        (
            PartReport("traffic", "lat", SegmentReport(None, 12.5), 7, 20, 150.5, 2_500.0),
            PartReport("traffic", "lon", None, 4, 2, 0.0, 0.0),
        ),
    ),
)


def node(name: str, seconds: float = 10.0, **counters: int) -> NodeReport:
    return NodeReport(
        name=name,
        version="0.1.0",
        roles=("broker",),
        uptime_seconds=seconds,
        counters=Counters(**counters).as_dict(),
        gauges=Gauges(clients_connected=4, subscriptions=5_000).as_dict(),
        sketch=SKETCH,
        peers=(PEER,) if name == "one" else (),
    )


def cluster(seconds: float = 10.0, **counters: int) -> ClusterReport:
    return ClusterReport(
        "dovetail",
        "one",
        (
            NodeEntry("one", "127.0.0.1:7883", "alive", node("one", seconds, **counters)),
            NodeEntry("other", "127.0.0.1:7884", "suspect"),
            NodeEntry("third", "127.0.0.1:7885", "dead"),
        ),
    )


def route(topic: str) -> RouteReport:
    here = TopicMatches((FilterMatch("a/+", 2), FilterMatch("$share/g/a/#", 3, "g")), 2, True)
    there = TopicMatches((FilterMatch("a/b", 1),), 1, True)
    nobody = TopicMatches((), 0, True)
    return RouteReport(
        topic,
        "one",
        here,
        (
            PeerRoute("needs", "alive", "maybe", True, there),
            PeerRoute("vain", "alive", "maybe", True, nobody),
            PeerRoute("not", "alive", "no", False, nobody),
            PeerRoute("mute", "suspect", "maybe", True),
            PeerRoute("new", "dead", "unknown", True),
        ),
    )


def spaces() -> SpacesReport:
    lat = DimensionReport("lat", -90, 90, is_searchable=True)
    speed = DimensionReport("speed", 0, 0.5, is_searchable=False)
    heat = DimensionReport("heat", -20, 1e20, is_searchable=True)
    return SpacesReport(
        "one",
        (
            SpaceReport("traffic", "traffic/#", (lat, speed), ("road",), True, 1_200, 1_201),
            SpaceReport("rooms", "rooms/+", (heat,), (), False, 0, 0, "full"),
        ),
    )


async def told_cluster() -> ClusterReport:
    return cluster()


async def told_route(topic: str, _attributes: Mapping[str, str]) -> RouteReport:
    if "+" in topic:
        raise ClientError(ReasonCode.TOPIC_NAME_INVALID, "'+' is a wildcard")
    return route(topic)


async def nobody(_credentials: HttpCredentials) -> None:
    """Accept every login, as no user."""


async def drained(name: str) -> DrainReport:
    return DrainReport(name, "leaves", ("another",))


async def planned(_order: PlanRequest) -> PlanReport:
    return PlanReport(7, {"m": {"s": (1.0,)}}, ())


def views(**other: object) -> Views:
    """Views of a broker for tests; an argument replaces the view of its name."""
    access = {name: other.pop(name, nobody) for name in ("log_in", "administer", "inspect")}
    parts: dict[str, object] = {
        "access": SimpleNamespace(**access),
        "stats": lambda: (Counters(), Gauges()),
        "health": lambda: (True, ""),
        "sketch": lambda: SKETCH,
        "peers": lambda: (PEER,),
        "cluster": told_cluster,
        "route": told_route,
        "spaces": spaces,
        "drain": drained,
        "plan": planned,
        "handles": None,
        "engine": None,
        "archive": None,
    }
    return cast("Views", SimpleNamespace(**(parts | other)))
