"""A broker as far as matchers see it, which asks them as fast as they answer.

So a matcher is measured through its process and its connections without a broker's other work: it
is fed boxes, asked about points in questions of a size, and answers with numbers of boxes.
"""

import asyncio
from collections.abc import Callable
from random import Random

import numpy as np

from dovetail.api.reports import NodeRole
from dovetail.cluster.addresses import Address
from dovetail.cluster.agent import NodeAgent
from dovetail.cluster.link_settings import ClusterLinks
from dovetail.cluster.node_settings import ClusterPart
from dovetail.cluster.peer_link import Link
from dovetail.matcher.broker_side import Front
from dovetail.matcher.layout import Layout
from dovetail.matcher.segment_tables import Phase
from dovetail.sim import workload

PATIENCE_SECONDS = 60.0


class BareFront(NodeAgent):
    """Its boxes are BlueDove's; verdicts are counted."""

    def __init__(
        self, name: str, layout: Layout, boxes: int, secret: bytes, *, is_listing: bool
    ) -> None:
        part = ClusterPart(ClusterLinks(name=name, port=0, role="broker", secret=secret), ())
        super().__init__(part, part.links, incarnation=1, random=Random(name))
        self._space = layout.id
        self._name = name
        self.front: Front[int] = Front(
            name,
            {layout.id: layout},
            1,
            self.transport.send,
            Random(1),
            question_seconds=PATIENCE_SECONDS,
            asking_seconds=PATIENCE_SECONDS,
            is_listing=is_listing,
        )
        self.front.put_many(layout.id, np.arange(boxes), *workload.boxes(boxes))
        self.verdicts = 0
        self.unsure = 0
        self.wanted = 0
        self.matches = 0
        self._points: list[tuple[float, ...]] = []
        self._next = 0
        self._at_once = self._under_way = 1

    async def start(self) -> Address:
        await self._listen()
        self._seek()
        self._turn()
        return self.transport.address

    async def stop(self) -> None:
        await self._say_goodbye(keeps=False)

    def serving(self) -> int:
        return sum(one.phase is Phase.SERVING for one in self.front.view.records.values())

    async def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = self._loop.time() + PATIENCE_SECONDS
        while not condition():
            if self._loop.time() > deadline:
                raise SystemExit(f"it took too long until {what}")
            await asyncio.sleep(0.01)

    async def ask(self, points: list[tuple[float, ...]], at_once: int, under_way: int) -> float:
        """Seconds for all of them: `at_once` in a turn, and so many turns' at the same time."""
        self._points, self._next = points, 0
        self._at_once, self._under_way = at_once, under_way * at_once
        self.verdicts = self.unsure = self.wanted = self.matches = 0
        began = self._loop.time()
        self._submit()
        await self.until(lambda: self.verdicts == len(points), "all points were answered for")
        return self._loop.time() - began

    def _submit(self) -> None:
        """As many as may be under way."""
        while self._next < len(self._points) and self._next - self.verdicts < self._under_way:
            chosen = self._points[self._next : self._next + self._at_once]
            self._next += len(chosen)
            for point in chosen:
                self.front.asking.submit(self._space, point, (self._name,), 0)
            self._flush()

    def _flush(self) -> None:
        self.front.turn(self._loop.time())
        for verdict in self.front.asking.take_verdicts():
            self.verdicts += 1
            self.unsure += bool(verdict.broad)
            self.wanted += bool(verdict.wanted)
            self.matches += sum(len(one.boxes) for one in verdict.narrow.values())

    # The agent's side -----------------------------------------------------------------------------

    def _turn(self) -> None:
        super()._turn()
        self._flush()

    def _take(self, link: Link, kind: int, body: bytes) -> None:
        self.front.answered(link.name, kind, body, self._loop.time())
        self._flush()
        self._submit()

    def _came_up(self, name: str, role: NodeRole, address: Address) -> None:  # noqa: ARG002
        self.front.matcher_is_up(name)

    def _went_down(self, name: str, role: NodeRole, *, is_alive: bool) -> None:  # noqa: ARG002
        self.front.matcher_is_down(name, self._loop.time())

    def _is_live(self, name: str, role: NodeRole, is_alive: bool) -> None:  # noqa: ARG002
        state = self.gossip.state(name)
        record = state.value("matcher") if is_alive and state is not None else None
        self.front.matcher_tells(name, record, self._loop.time())

    def _has_left(self, name: str, role: NodeRole) -> None:
        """Nothing waits for it."""

    def _is_forgotten(self, name: str) -> None:
        """Nor is anything kept for it."""

    def _is_at(self, name: str, role: NodeRole, address: Address) -> None:
        """It is dialed."""

    def _has_been_told(self, role: NodeRole) -> None:
        """Nothing waits for that."""
