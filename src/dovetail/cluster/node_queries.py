"""Questions of people, passed on by the node that they asked to the others: how are you?

    here                                            another node
      | -- QUESTION: number, about what ----------> |   when a person asks, and never by itself
      | <- ANSWER: the same number, a report ------ |

Rules:

- Nothing hangs on an answer but what a person sees. Who does not answer within a second is shown
  without one.
- People who ask at the same time get the same answers: others are asked once.
- A node of any role answers a node of any role.
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
from dovetail.cluster.limits import QUESTION_SECONDS_MAX
from dovetail.cluster.peer_link import Link
from dovetail.cluster.query_messages import (
    ANSWER,
    QUESTION,
    Answer,
    Question,
    answer_decoder,
    question_decoder,
)

Report = TypeVar("Report")

_node_decoder = msgspec.msgpack.Decoder(NodeReport)


class NodeAsking(ABC):
    """One node's questions to others, and its answers to theirs."""

    def __init__(self, agent: NodeAgent) -> None:
        self._agent = agent
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[str, asyncio.Future[bytes]]] = {}
        self._gathering: asyncio.Task[ClusterReport] | None = None

    # What a role knows ----------------------------------------------------------------------------

    @abstractmethod
    def node(self) -> NodeReport:
        """Of ourselves."""

    def _names(self) -> Iterable[str]:
        """All others."""
        return {*self._agent.gossip.table} - {self._agent.name}

    def _address(self, name: str) -> str:
        state = self._agent.gossip.state(name)
        told = None if state is None else state.value(ADDRESS)
        return "" if told is None else told.decode(errors="replace")

    def _answer(self, question: Question) -> bytes:  # noqa: ARG002
        """A report."""
        return encode(self.node())

    # Of all ---------------------------------------------------------------------------------------

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
        kind: int = QUESTION,
        attributes: Mapping[str, str] | None = None,
    ) -> dict[str, bytes]:
        """Answers by name. Without a topic it is about how they are."""
        asked: list[int] = []
        for name in names:
            number = next(self._numbers)
            body = encode(Question(number, topic, {**(attributes or {})}))
            if self._agent.transport.send(name, kind, body):
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

    def takes(self, link: Link, kind: int, body: bytes) -> bool:
        """Was it a question or an answer? What is asked is answered on the same connection."""
        if kind == QUESTION and not link.is_dialed:
            question = decoded(question_decoder, body)
            link.answer(ANSWER, encode(Answer(question.number, self._answer(question))))
        elif kind == ANSWER and link.is_dialed:
            self.answered(link.name, body)
        else:
            return False
        return True

    def answered(self, name: str, body: bytes) -> None:
        """An ANSWER, maybe too late."""
        answer = decoded(answer_decoder, body)
        asked, future = self._waiting.get(answer.number, ("", None))
        if future is not None and asked == name and not future.done():
            future.set_result(answer.report)


def read(
    decoder: msgspec.msgpack.Decoder[Report], answers: dict[str, bytes], name: str
) -> Report | None:
    """None for what another version says that this one cannot read."""
    report = answers.get(name)
    if report is None:
        return None
    try:
        return decoder.decode(report)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
