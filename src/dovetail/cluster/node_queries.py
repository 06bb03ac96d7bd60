"""Queries other nodes for their reports, for HTTP pages and commands.

    this node                                       another node
      | -- QUERY: number, topic, attributes ------> |   only on request of a person or program
      | <- QUERY_REPLY: the same number, a report - |

Rules:

- Replies are for display only. A node that does not reply within QUERY_SECONDS_MAX is shown without
  a report.
- Requests at the same time share one query of the cluster.
- A node of any role replies to a node of any role.
"""

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from dovetail.api.reports import ClusterReport, NodeEntry, NodeReport
from dovetail.cluster.agent import ADDRESS, NodeAgent
from dovetail.cluster.frame_body import decoded, encode
from dovetail.cluster.limits import QUERY_SECONDS_MAX
from dovetail.cluster.peer_link import PeerLink
from dovetail.cluster.query_messages import (
    QUERY,
    QUERY_REPLY,
    NodeQuery,
    QueryReply,
    query_decoder,
    query_reply_decoder,
)

Report = TypeVar("Report")

_node_decoder = msgspec.msgpack.Decoder(NodeReport)


class NodeQueries(ABC):
    """One node's queries to others, and its replies to theirs."""

    def __init__(self, agent: NodeAgent) -> None:
        self._agent = agent
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[str, asyncio.Future[bytes]]] = {}
        self._gathering: asyncio.Task[ClusterReport] | None = None

    # For the subclass of a role -------------------------------------------------------------------

    @abstractmethod
    def node(self) -> NodeReport:
        """Return this node's report."""

    def _names(self) -> Iterable[str]:
        """Return the names of all other nodes."""
        return {*self._agent.gossip.table} - {self._agent.name}

    def _address(self, name: str) -> str:
        state = self._agent.gossip.state(name)
        value = None if state is None else state.value(ADDRESS)
        return "" if value is None else value.decode(errors="replace")

    def _answer(self, question: NodeQuery) -> bytes:  # noqa: ARG002
        """Return the report that a query asks for, encoded."""
        return encode(self.node())

    # Queries --------------------------------------------------------------------------------------

    async def cluster(self) -> ClusterReport:
        if self._gathering is None:
            self._gathering = self._loop.create_task(self._gather())
        return await asyncio.shield(self._gathering)

    async def _gather(self) -> ClusterReport:
        try:
            answers = await self._ask(b"", self._names())
        finally:
            self._gathering = None
        agent = self._agent
        transport = agent.transport
        role = transport.links.role
        nodes = [NodeEntry(agent.name, str(transport.address), "alive", self.node(), role)]
        nodes += [
            NodeEntry(
                name,
                self._address(name),
                agent.state_of(name),
                read(_node_decoder, answers, name),
                agent.role_of(name) or "broker",
            )
            for name in self._names()
        ]
        nodes.sort(key=lambda entry: entry.name)
        return ClusterReport(transport.links.cluster, agent.name, tuple(nodes))

    async def _ask(
        self,
        topic: bytes,
        names: Iterable[str],
        kind: int = QUERY,
        attributes: Mapping[str, str] | None = None,
    ) -> dict[str, bytes]:
        """Send a query to these nodes. Return the encoded reports by name, of those that reply."""
        asked: list[int] = []
        for name in names:
            number = next(self._numbers)
            body = encode(NodeQuery(number, topic, {**(attributes or {})}))
            if self._agent.transport.send(name, kind, body):
                self._waiting[number] = (name, self._loop.create_future())
                asked.append(number)
        try:
            if asked:
                futures = [self._waiting[number][1] for number in asked]
                await asyncio.wait(futures, timeout=QUERY_SECONDS_MAX)
        finally:
            waited = [self._waiting.pop(number) for number in asked]
        return {name: future.result() for name, future in waited if future.done()}

    # Frames ---------------------------------------------------------------------------------------

    def takes(self, link: PeerLink, kind: int, body: bytes) -> bool:
        """Handle a query or a reply. Return False for other frames."""
        if kind == QUERY and not link.is_dialed:
            question = decoded(query_decoder, body)
            link.answer(QUERY_REPLY, encode(QueryReply(question.number, self._answer(question))))
        elif kind == QUERY_REPLY and link.is_dialed:
            self.answered(link.name, body)
        else:
            return False
        return True

    def answered(self, name: str, body: bytes) -> None:
        """Take a QUERY_REPLY, maybe too late."""
        answer = decoded(query_reply_decoder, body)
        asked, future = self._waiting.get(answer.number, ("", None))
        if future is not None and asked == name and not future.done():
            future.set_result(answer.report)


def read(
    decoder: msgspec.msgpack.Decoder[Report], answers: dict[str, bytes], name: str
) -> Report | None:
    """Decode a node's report. None if it is missing, or another version's and unreadable."""
    report = answers.get(name)
    if report is None:
        return None
    try:
        return decoder.decode(report)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
