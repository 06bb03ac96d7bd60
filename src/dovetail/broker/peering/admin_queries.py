"""Queries that only brokers send: who would get a publication? They also drain and move matchers.

`cluster/node_queries.py` has the rules, and the queries of all nodes.
"""

import time
from collections.abc import Iterable, Mapping

import msgspec

from dovetail.api.reports import (
    DrainReport,
    DrainVerdict,
    NodeReport,
    PeerReport,
    PeerRoute,
    PlanReport,
    PlanRequest,
    RouteReport,
    SketchReport,
    SketchVerdict,
    TopicMatches,
)
from dovetail.broker.explanation import explain_attributes
from dovetail.broker.peering.mesh import Mesh
from dovetail.broker.reporter import Reporter
from dovetail.broker.route import clause_topic
from dovetail.cluster.agent import NodeAgent
from dovetail.cluster.frame_body import encode
from dovetail.cluster.node_queries import NodeQueries, read
from dovetail.cluster.query_messages import DRAIN, MOVE, NodeQuery
from dovetail.errors import ClientError
from dovetail.matcher.plan_assignment import order_for
from dovetail.topics.names import SYS_PREFIX, check_name

_matches_decoder = msgspec.msgpack.Decoder(TopicMatches)


class AdminQueries(NodeQueries):
    """The queries of one broker."""

    def __init__(self, reporter: Reporter, mesh: Mesh, agent: NodeAgent) -> None:
        super().__init__(agent)
        self._reporter = reporter
        self._mesh = mesh

    # Of ourselves ---------------------------------------------------------------------------------

    def sketch(self) -> SketchReport:
        sketch = self._mesh.sketch_exchange.sketch
        return SketchReport(sketch.bits, sketch.elements, sketch.fill, sketch.false_positive_rate)

    def peers(self) -> tuple[PeerReport, ...]:
        """Return a report of each other broker."""
        agent = self._agent
        names = [name for name in self._names() if agent.role_of(name) != "matcher"]
        return tuple(self._peer(name) for name in sorted(names))

    def node(self) -> NodeReport:
        return self._reporter.node(self.sketch(), self.peers())

    def _names(self) -> Iterable[str]:
        """Return all other nodes, also those that gossip has not found yet in this life."""
        return {*super()._names(), *self._mesh.names()}

    def _address(self, name: str) -> str:
        return self._mesh.peers.addresses.get(name, "") or super()._address(name)

    def _peer(self, name: str) -> PeerReport:
        mesh = self._mesh
        is_known = name in mesh.names()
        outbox = mesh.outbox(name) if is_known else None
        bank = mesh.sketch_exchange.bank
        is_sketch_known = name in bank
        return PeerReport(
            name=name,
            address=self._address(name),
            state=self._agent.state_of(name),
            is_connected=name in self._agent.transport.connected,
            is_sketch_known=is_sketch_known,
            owed_messages=0 if outbox is None else outbox.count,
            owed_bytes=0 if outbox is None else outbox.nbytes,
            forwarded=mesh.forwarder.counts.get(name, 0),
            sketch_bits=bank.geometry_of(name).bits if is_sketch_known else 0,
            sketch_fill=bank.fill_of(name) if is_sketch_known else 0.0,
        )

    # Of a topic -----------------------------------------------------------------------------------

    async def route(self, topic: str, given: Mapping[str, str] | None = None) -> RouteReport:
        """Return who would get a publication. Raise a ClientError for a bad topic or attribute."""
        name = check_name(topic)
        router = self._reporter.broker.router
        attributes = None
        if given:
            attributes = explain_attributes(router, name, given, self._mesh.matcher_client)
        answers = await self._ask(name, self._mesh.names(), attributes=given)
        found = set(self._mesh.sketch_exchange.search([name])[0])
        governed = router.spaces.space_of_topic(name) is not None
        wanting = (
            set(self._mesh.sketch_exchange.search([clause_topic(name)])[0]) if governed else set()
        )
        stays = name.startswith(SYS_PREFIX)
        peers = []
        for peer in self.peers():
            guess: SketchVerdict = "no"
            if not peer.is_sketch_known:
                guess = "unknown"
            elif peer.name in found:
                guess = "maybe"
            peers.append(
                PeerRoute(
                    peer.name,
                    peer.state,
                    guess,
                    peer.name in found and not stays,
                    read(_matches_decoder, answers, peer.name),
                    peer.name in wanting,
                )
            )
        here = self._reporter.matches(name, given)
        is_archived = self._reporter.is_archived(name)
        return RouteReport(topic, self._reporter.name, here, tuple(peers), attributes, is_archived)

    # Of matchers ----------------------------------------------------------------------------------

    async def drain(self, name: str) -> DrainReport:
        """Tell a matcher to hand over and leave."""
        others = [
            one
            for one in self._names()
            if one != name
            and self._agent.role_of(one) == "matcher"
            and self._agent.state_of(one) in {"alive", "suspect"}
        ]
        return DrainReport(name, await self._drained(name), tuple(sorted(others)))

    async def _drained(self, name: str) -> DrainVerdict:
        if name not in {self._agent.name, *self._names()}:
            return "unknown"
        if self._agent.role_of(name) != "matcher":
            return "broker"
        state = self._agent.state_of(name)
        if state in {"left", "dead"}:
            return "left" if state == "left" else "dead"
        return "leaves" if await self._ask(b"", [name], DRAIN) else "silent"

    async def move(self, planned: PlanRequest) -> PlanReport:
        """Give the matchers other places. Raise a ClientError if they cannot have them."""
        directory = self._mesh.matcher_client.directory
        latest = max((one.plan for one in directory.records.values()), default=0)
        # Later than all before it, also where another broker's clock is ahead.
        order = order_for(directory, planned.spaces, max(int(time.time() * 1_000), latest + 1))
        answers = await self._ask(encode(order), order.places, MOVE)
        spaces = {layout.id: layout.name for layout in directory.layouts.values()}
        return PlanReport(
            order.number,
            {
                name: {spaces[one]: tokens for one, tokens in own.items()}
                for name, own in order.places.items()
            },
            tuple(sorted(order.places.keys() - answers.keys())),
        )

    def _answer(self, question: NodeQuery) -> bytes:
        if not question.topic:
            return encode(self.node())
        try:
            check_name(question.topic)
        except ClientError:  # the other broker has other rules: here it matches nothing
            return encode(TopicMatches((), 0, False))
        return encode(self._reporter.matches(question.topic, question.attributes))
