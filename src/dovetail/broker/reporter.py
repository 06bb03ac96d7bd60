"""Reports of one broker: its status, the filters that match a topic, and its spaces. Pure."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from dovetail import __version__
from dovetail.api.reports import (
    DimensionReport,
    FilterMatch,
    NodeReport,
    PeerReport,
    SketchReport,
    SpaceReport,
    SpacesReport,
    TopicMatches,
)
from dovetail.attributes.scheme import Scheme
from dovetail.attributes.space import Point, Space
from dovetail.attributes.space_registry import point_with
from dovetail.broker.core import Broker
from dovetail.broker.limits import MATCHES_SHOWN_MAX
from dovetail.broker.route import Group, GroupClauses
from dovetail.broker.subscription import Subscription
from dovetail.errors import ClientError
from dovetail.matcher.layout import layout_of
from dovetail.topics.names import split_shared


class Reporter:
    """Makes the reports of one broker."""

    def __init__(self, broker: Broker, name: str, started_at: float) -> None:
        self.name = name
        self.broker = broker
        self.http = ""
        """The address of its HTTP interface, once it listens."""
        self._started_at = started_at

    def node(
        self, sketch: SketchReport | None = None, peers: tuple[PeerReport, ...] = ()
    ) -> NodeReport:
        shared = self.broker.shared
        return NodeReport(
            name=self.name,
            version=__version__,
            roles=("broker",),
            uptime_seconds=max(shared.now - self._started_at, 0.0),
            counters=shared.counters.as_dict(),
            gauges=shared.gauges.as_dict(),
            sketch=sketch,
            peers=peers,
            http=self.http,
        )

    def matches(self, topic: bytes, attributes: Mapping[str, str] | None = None) -> TopicMatches:
        """Return the filters that match a valid topic name. No route is cached.

        With attributes it also counts the clauses that hold: none, if the attributes are invalid.
        """
        found: dict[str, FilterMatch] = {}
        point = self._point(topic, attributes or {})
        for entry in self.broker.router.matching(topic):
            if isinstance(entry, Group):
                members = entry.members.values()
                text = next(iter(members)).filter
                shared = split_shared(text)
                group = None if shared is None else shared.group
                found[text] = FilterMatch(text, len(members), group)
            elif isinstance(entry, Subscription):
                known = found.get(entry.filter)
                count = 0 if known is None else known.subscribers
                found[entry.filter] = FilterMatch(entry.filter, count + 1)
            else:
                of = " of groups" if isinstance(entry, GroupClauses) else ""
                text = f"{entry.filter} with where-clauses{of}"
                holding = None
                if attributes:
                    holding = 0 if point is None else len(entry.find(point))
                found[text] = FilterMatch(text, len(entry), holding=holding)
        listed = sorted(found.values(), key=lambda match: (-match.subscribers, match.filter))
        return TopicMatches(
            tuple(listed[:MATCHES_SHOWN_MAX]),
            len(listed),
            self.broker.retained.get(topic) is not None,
        )

    def is_archived(self, topic: bytes) -> bool:
        """Does this broker archive what its clients publish to this topic?"""
        return self.broker.router.archive.archives(topic)

    def _point(self, topic: bytes, attributes: Mapping[str, str]) -> Point | None:
        space = self.broker.router.spaces.space_of_topic(topic)
        if space is None:
            return None
        with suppress(ClientError):
            return point_with(space, attributes)
        return None

    def spaces(self) -> SpacesReport:
        router = self.broker.router
        wanted: Counter[Space] = Counter()
        boxes: Counter[Space] = Counter()
        for known in router.clauses.values():
            wanted[known.space] += len(known)
            boxes[known.space] += known.boxes
        for group in router.groups.values():
            if group.clause is not None:
                wanted[group.clause.space] += 1
                boxes[group.clause.space] += len(group.clause.boxes)
        return SpacesReport(
            self.name,
            tuple(
                SpaceReport(
                    name=space.name,
                    topics=space.topics,
                    dimensions=tuple(
                        DimensionReport(one.name, one.low, one.high, one.is_searchable)
                        for one in space.dimensions
                    ),
                    texts=tuple(sorted(space.texts)),
                    json_fields=space.json_fields,
                    subscriptions=wanted[space],
                    boxes=boxes[space],
                    scheme=space.sharing.scheme,
                    along=layout.name_of(0) if layout.scheme is Scheme.P2P else "",
                    policy=space.sharing.policy,
                    engine="spark" if space.is_streamed else "live",
                )
                for space, layout in [(one, layout_of(one)) for one in router.spaces.all]
            ),
        )
