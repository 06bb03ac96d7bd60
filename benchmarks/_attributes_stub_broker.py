"""A stub of a broker that asks matchers as fast as they answer.

It measures a matcher through its process and its connections, without a broker's other work. It
feeds the matcher boxes and sends questions of a fixed size; answers are numbers of boxes.
"""

import asyncio
from collections.abc import Callable
from random import Random

import numpy as np

from dovetail.api.reports import NodeRole
from dovetail.cluster.addresses import Address
from dovetail.cluster.agent import NodeAgent
from dovetail.cluster.link_settings import LinkSettings
from dovetail.cluster.node_settings import NodeSettings
from dovetail.cluster.peer_link import PeerLink
from dovetail.matcher.broker_side import BrokerSide
from dovetail.matcher.layout import Layout
from dovetail.matcher.segment_tables import Phase
from dovetail.sim import workload

PATIENCE_SECONDS = 60.0


class StubBroker(NodeAgent):
    """A stub of a broker with BlueDove's boxes; it counts verdicts."""

    def __init__(
        self, name: str, layout: Layout, boxes: int, secret: bytes, *, is_listing: bool
    ) -> None:
        settings = NodeSettings(LinkSettings(name=name, port=0, role="broker", secret=secret), ())
        super().__init__(settings, settings.links, incarnation=1, random=Random(name))
        self._space = layout.id
        self._name = name
        self.side: BrokerSide[int] = BrokerSide(
            name,
            {layout.id: layout},
            1,
            self.transport.send,
            Random(1),
            question_seconds=PATIENCE_SECONDS,
            asking_seconds=PATIENCE_SECONDS,
            is_listing=is_listing,
        )
        self.side.put_many(layout.id, np.arange(boxes), *workload.boxes(boxes))
        self.verdicts = 0
        self.unsure = 0
        self.wanted = 0
        self.matches = 0
        self._points: list[tuple[float, ...]] = []
        self._next = 0
        self._at_once = self._under_way = 1

    async def start(self) -> Address:
        await self._listen()
        self._dial_seeds()
        self._turn()
        return self.transport.address

    async def stop(self) -> None:
        await self._say_goodbye(keeps=False)

    def serving(self) -> int:
        return sum(one.phase is Phase.SERVING for one in self.side.directory.records.values())

    async def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = self._loop.time() + PATIENCE_SECONDS
        while not condition():
            if self._loop.time() > deadline:
                raise SystemExit(f"it took too long until {what}")
            await asyncio.sleep(0.01)

    async def ask(self, points: list[tuple[float, ...]], at_once: int, under_way: int) -> float:
        """Ask about all points, `at_once` in a turn; return the seconds."""
        self._points, self._next = points, 0
        self._at_once, self._under_way = at_once, under_way * at_once
        self.verdicts = self.unsure = self.wanted = self.matches = 0
        began = self._loop.time()
        self._submit()
        await self.until(lambda: self.verdicts == len(points), "all points were answered for")
        return self._loop.time() - began

    def _submit(self) -> None:
        """Submit as many points as may be unanswered."""
        while self._next < len(self._points) and self._next - self.verdicts < self._under_way:
            chosen = self._points[self._next : self._next + self._at_once]
            self._next += len(chosen)
            for point in chosen:
                self.side.questions.submit(self._space, point, (self._name,), 0)
            self._flush()

    def _flush(self) -> None:
        self.side.turn(self._loop.time())
        for verdict in self.side.questions.take_verdicts():
            self.verdicts += 1
            self.unsure += bool(verdict.unsure)
            self.wanted += bool(verdict.receivers)
            self.matches += sum(len(one.boxes) for one in verdict.boxes.values())

    # The agent's side -----------------------------------------------------------------------------

    def _turn(self) -> None:
        super()._turn()
        self._flush()

    def _handle_frame(self, link: PeerLink, kind: int, body: bytes) -> None:
        self.side.answered(link.name, kind, body, self._loop.time())
        self._flush()
        self._submit()

    def _came_up(self, name: str, role: NodeRole, address: Address) -> None:  # noqa: ARG002
        self.side.matcher_is_up(name)

    def _went_down(self, name: str, role: NodeRole, *, is_alive: bool) -> None:  # noqa: ARG002
        self.side.matcher_is_down(name, self._loop.time())

    def _is_live(self, name: str, role: NodeRole, is_alive: bool) -> None:  # noqa: ARG002
        state = self.gossip.state(name)
        record = state.value("matcher") if is_alive and state is not None else None
        self.side.receive_record(name, record, self._loop.time())

    def _has_left(self, name: str, role: NodeRole) -> None:
        """Do nothing: nobody waits for a matcher."""

    def _is_forgotten(self, name: str) -> None:
        """Do nothing: there is no spool for a matcher."""

    def _address_known(self, name: str, role: NodeRole, address: Address) -> None:
        """Dial a matcher."""

    def _gossip_answered(self, role: NodeRole) -> None:
        """Do nothing: nobody waits for gossip."""
