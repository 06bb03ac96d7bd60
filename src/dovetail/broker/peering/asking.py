"""Questions between nodes: how are you; and between brokers: who would get this?

    here                                            another node
      | -- QUESTION: number, about what ----------> |   when a person asks, and never by itself
      | <- ANSWER: the same number, a report ------ |

Rules:

- Nothing hangs on an answer but what a person sees. Who does not answer within a second is shown
  without one.
- People who ask at the same time get the same answers: peers are asked once.
"""

import asyncio
import itertools
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from dovetail.broker.peering.mesh import Mesh
from dovetail.broker.reporting import Reporter
from dovetail.broker.routing import with_clauses
from dovetail.cluster.agent import ADDRESS, NodeAgent
from dovetail.cluster.bodies import decoded, encode
from dovetail.cluster.link import Link
from dovetail.cluster.questions import (
    ANSWER,
    QUESTION,
    Answer,
    Question,
    answer_decoder,
    question_decoder,
)
from dovetail.config import QUESTION_SECONDS_MAX
from dovetail.errors import ClientError
from dovetail.reports import (
    ClusterReport,
    Guess,
    Matches,
    NodeEntry,
    NodeReport,
    PeerReport,
    PeerRoute,
    RouteReport,
    SketchReport,
)
from dovetail.topics.names import SYS_PREFIX, check_name

_Report = TypeVar("_Report", NodeReport, Matches)

_node_decoder = msgspec.msgpack.Decoder(NodeReport)
_matches_decoder = msgspec.msgpack.Decoder(Matches)


class Asking:
    """One broker's questions to other nodes, and its answers to theirs."""

    def __init__(self, reporter: Reporter, mesh: Mesh, agent: NodeAgent) -> None:
        self._reporter = reporter
        self._mesh = mesh
        self._agent = agent
        self._gossip = agent.gossip
        self._transport = agent.transport
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[str, asyncio.Future[bytes]]] = {}
        self._gathering: asyncio.Task[ClusterReport] | None = None

    # Of ourselves ---------------------------------------------------------------------------------

    def sketch(self) -> SketchReport:
        sketch = self._mesh.exchange.sketch
        return SketchReport(sketch.bits, sketch.elements, sketch.fill, sketch.false_positive_rate)

    def peers(self) -> tuple[PeerReport, ...]:
        return tuple(self._peer(name) for name in self._names())

    def node(self) -> NodeReport:
        return self._reporter.node(self.sketch(), self.peers())

    def _names(self) -> Iterable[str]:
        """Other brokers."""
        known = {*self._mesh.names(), *self._gossip.table} - {self._gossip.name}
        return sorted(known - {*self._matchers()})

    def _matchers(self) -> Iterable[str]:
        return [name for name in self._gossip.table if self._agent.role_of(name) == "matcher"]

    def _peer(self, name: str) -> PeerReport:
        mesh = self._mesh
        is_known = name in mesh.names()
        outbox = mesh.owed(name) if is_known else None
        bank = mesh.exchange.bank
        is_sketch_known = name in bank
        return PeerReport(
            name=name,
            address=mesh.peers.addresses.get(name, ""),
            state=self._agent.state_of(name),
            is_connected=name in self._transport.connected,
            is_sketch_known=is_sketch_known,
            owed_messages=0 if outbox is None else outbox.count,
            owed_bytes=0 if outbox is None else outbox.nbytes,
            forwarded=mesh.forwarding.counts.get(name, 0),
            sketch_bits=bank.geometry_of(name).bits if is_sketch_known else 0,
            sketch_fill=bank.fill_of(name) if is_sketch_known else 0.0,
        )

    # Of all ---------------------------------------------------------------------------------------

    async def cluster(self) -> ClusterReport:
        if self._gathering is None:
            self._gathering = self._loop.create_task(self._gather())
        return await asyncio.shield(self._gathering)

    async def _gather(self) -> ClusterReport:
        try:
            answers = await self._ask(b"", [*self._mesh.names(), *self._matchers()])
        finally:
            self._gathering = None
        own = NodeEntry(self._reporter.name, str(self._transport.address), "alive", self.node())
        others = [
            NodeEntry(peer.name, peer.address, peer.state, _read(_node_decoder, answers, peer.name))
            for peer in self.peers()
        ]
        others += [self._matcher(name, answers) for name in self._matchers()]
        nodes = sorted([own, *others], key=lambda entry: entry.name)
        return ClusterReport(self._transport.links.cluster, self._reporter.name, tuple(nodes))

    def _matcher(self, name: str, answers: dict[str, bytes]) -> NodeEntry:
        state = self._gossip.state(name)
        address = None if state is None else state.value(ADDRESS)
        return NodeEntry(
            name,
            "" if address is None else address.decode(errors="replace"),
            self._agent.state_of(name),
            _read(_node_decoder, answers, name),
            "matcher",
        )

    async def route(self, topic: str) -> RouteReport:
        """A ClientError if it is no name of a topic."""
        name = check_name(topic)
        answers = await self._ask(name, self._mesh.names())
        found = set(self._mesh.exchange.search([name])[0])
        governed = self._reporter.broker.router.spaces.governing(name) is not None
        wanting = set(self._mesh.exchange.search([with_clauses(name)])[0]) if governed else set()
        stays = name.startswith(SYS_PREFIX)
        peers = []
        for peer in self.peers():
            guess: Guess = "no"
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
                    _read(_matches_decoder, answers, peer.name),
                    peer.name in wanting,
                )
            )
        here = self._reporter.matches(name)
        return RouteReport(topic, self._reporter.name, here, tuple(peers))

    async def _ask(self, topic: bytes, names: Iterable[str]) -> dict[str, bytes]:
        """Answers by name. Without a topic it is about how they are."""
        asked: list[int] = []
        for name in names:
            number = next(self._numbers)
            if self._transport.send(name, QUESTION, encode(Question(number, topic))):
                self._waiting[number] = (name, self._loop.create_future())
                asked.append(number)
        try:
            if asked:
                futures = [self._waiting[number][1] for number in asked]
                await asyncio.wait(futures, timeout=QUESTION_SECONDS_MAX)
        finally:
            waited = [self._waiting.pop(number) for number in asked]
        return {name: future.result() for name, future in waited if future.done()}

    # Frames ---------------------------------------------------------------------------------------

    def receive(self, link: Link, body: bytes) -> None:
        """A QUESTION; the answer goes back over the same connection, if there is room."""
        question = decoded(question_decoder, body)
        link.answer(ANSWER, encode(Answer(question.number, self._answer(question.topic))))

    def _answer(self, topic: bytes) -> bytes:
        if not topic:
            return encode(self.node())
        try:
            check_name(topic)
        except ClientError:  # its rules are others than ours: here it leads nowhere
            return encode(Matches((), 0, False))
        return encode(self._reporter.matches(topic))

    def answered(self, name: str, body: bytes) -> None:
        """An ANSWER, maybe too late."""
        answer = decoded(answer_decoder, body)
        asked, future = self._waiting.get(answer.number, ("", None))
        if future is not None and asked == name and not future.done():
            future.set_result(answer.report)


def _read(
    decoder: msgspec.msgpack.Decoder[_Report], answers: dict[str, bytes], name: str
) -> _Report | None:
    """None for what another version says that this one cannot read."""
    report = answers.get(name)
    if report is None:
        return None
    try:
        return decoder.decode(report)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
