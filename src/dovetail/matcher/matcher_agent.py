"""A matcher in a live cluster: gossip and real connections drive it, and the clock.

    transport, gossip (cluster/)              matcher_side.py
      brokers' FEED and ASKED           ->      boxes, questions; jobs are done between reads
      records of other matchers         ->      the tables
      its own record                    <-      its phase and tokens
      LOADS, on brokers' connections    <-      how busy it is

Rules:

- It enters the tables when somebody has told it who is there; at once if there is nobody to tell.
- Jobs are done in slices of the loop's time, so that frames come in meanwhile.
- Who leaves hands over first: it goes when all brokers have released it, or after a while. A broker
  may tell it to (DRAIN), for a person who asked for that.
- A broker may give it another place (MOVE), for a person who gave the cluster a plan.
- What brokers have it loses with its life: they feed it anew. It keeps nothing on disk.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from random import Random

from dovetail import __version__
from dovetail.api.reports import MatcherReport, NodeReport, NodeRole
from dovetail.cluster.addresses import Address
from dovetail.cluster.agent import NodeAgent
from dovetail.cluster.frame_body import decoded, encode
from dovetail.cluster.node_queries import NodeAsking
from dovetail.cluster.node_settings import ClusterPart
from dovetail.cluster.peer_link import Link
from dovetail.cluster.query_messages import ANSWER, DRAIN, MOVE, Answer, question_decoder
from dovetail.errors import PeerError
from dovetail.matcher.layout import Layout
from dovetail.matcher.limits import (
    MATCHER_LEAVE_SECONDS_MAX,
    MATCHER_LINGER_SECONDS,
    MATCHER_SLICE_SECONDS,
)
from dovetail.matcher.matcher_messages import ANSWERED, LOADS
from dovetail.matcher.matcher_side import Back
from dovetail.matcher.relocation import order_decoder
from dovetail.matcher.segment_report import parts_of
from dovetail.matcher.segment_tables import MATCHER, Phase

log = logging.getLogger("dovetail.matcher")


class Asking(NodeAsking):
    """What people ask a matcher."""

    def __init__(self, agent: "MatcherAgent") -> None:
        super().__init__(agent)
        self._matcher = agent

    def node(self) -> NodeReport:
        return self._matcher.report()


class MatcherAgent(NodeAgent):
    """One life of a matcher."""

    def __init__(
        self,
        part: ClusterPart,
        layouts: Mapping[str, Layout],
        *,
        incarnation: int,
        random: Random,
        on_drain: Callable[[], None] | None = None,
    ) -> None:
        """`on_drain`: somebody wants it to hand over and leave, which is `stop`."""
        super().__init__(part, part.links, incarnation=incarnation, random=random)
        self.back = Back(self.name, layouts, self._loop.time())
        self.asking = Asking(self)
        self._started_at = self._loop.time()
        self._on_drain = on_drain
        self._is_told = asyncio.Event()
        self._is_gone = asyncio.Event()
        self._hurries = asyncio.Event()
        self._is_leaving = False
        self._is_working = False

    # Its life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """It is in the tables when this returns; brokers begin to feed it."""
        await self._listen()
        has_seeds = self._seek()
        self._turn()
        if has_seeds and not await self._await_others(self._is_told):
            log.warning("began without the others after %g s", self._part.join_seconds_max)
        self.back.join(self._loop.time())

    async def stop(self) -> None:
        """Others are given what it answers for, if anybody is there who could do that."""
        self.back.leave(self._loop.time())
        self._is_leaving = True
        if self.brokers():
            log.info("leaves, and answers until brokers have given others what it holds")
            await self._hand_over()
        await self._say_goodbye(keeps=False)

    async def _hand_over(self) -> None:
        gone = asyncio.create_task(self._is_gone.wait())
        hurried = asyncio.create_task(self._hurries.wait())
        seconds_max = MATCHER_LEAVE_SECONDS_MAX + MATCHER_LINGER_SECONDS
        done, _ = await asyncio.wait(
            {gone, hurried}, timeout=seconds_max, return_when=asyncio.FIRST_COMPLETED
        )
        for task in (gone, hurried):
            task.cancel()
        if gone not in done:
            log.warning("goes before all have what it answered for; brokers find it themselves")

    def hurry(self) -> None:
        """Do not wait for brokers when leaving."""
        self._hurries.set()

    def change(self, layouts: Mapping[str, Layout]) -> None:
        """Other spaces: it begins anew. Brokers feed anew whom they have just dialed."""
        for name in self.brokers():
            self.transport.hang_up(name, "it has other spaces now")
        self.back = Back(self.name, layouts, self._loop.time())
        for name in self.gossip.live():
            if self.role_of(name) == "matcher":
                self._tell(name, is_alive=True)
        self.back.join(self._loop.time())

    # Turns ----------------------------------------------------------------------------------------

    def _turn(self) -> None:
        super()._turn()
        now = self._loop.time()
        brokers = self.brokers()
        loads, record = self.back.tick(now, brokers)
        if record is not None:
            self.gossip.put(MATCHER, record)
        if loads is not None:
            for name in brokers:
                self.transport.answer(name, LOADS, loads)
        if self._is_leaving:
            joining = self.back.joining
            if not brokers or joining is None or joining.is_gone(now):
                self._is_gone.set()
        self._work_soon()  # questions that have waited long enough for boxes

    def brokers(self) -> list[str]:
        """Those who are there."""
        live = {*self.gossip.live(), *self.transport.connected}
        return [name for name in live if self.role_of(name) == "broker"]

    def _work_soon(self) -> None:
        if not self._is_working:
            self._is_working = True
            self._loop.call_soon(self._work)

    def _work(self) -> None:
        """Jobs for a while, and the rest after what has come in meanwhile."""
        self._is_working = False
        answering = self.back.answering
        begun_at = time.perf_counter()
        until = begun_at + MATCHER_SLICE_SECONDS
        while begun_at < until:
            job = answering.next_job(self._loop.time())
            if job is None:
                return
            for asker, body in answering.answers(job):
                # One that is not there asks another matcher.
                self.transport.answer(asker, ANSWERED, body)
            ended_at = time.perf_counter()
            answering.took(job, ended_at - begun_at)
            begun_at = ended_at
        self._work_soon()

    # Frames ---------------------------------------------------------------------------------------

    def _take(self, link: Link, kind: int, body: bytes) -> None:
        if self.asking.takes(link, kind, body):
            return
        if link.is_dialed or link.hello.role != "broker":
            raise PeerError(f"a frame of kind {kind} for a matcher, which brokers alone have")
        if kind == DRAIN:
            question = decoded(question_decoder, body)
            link.answer(ANSWER, encode(Answer(question.number, encode(self.report()))))
            if self._on_drain is not None:
                self._on_drain()
            return
        if kind == MOVE:
            self._move(link, body)
            return
        begun_at = time.perf_counter()
        self.back.receive(link.name, kind, body, link.answer, self._loop.time())
        self.back.answering.worked(time.perf_counter() - begun_at)
        self._work_soon()

    def _move(self, link: Link, body: bytes) -> None:
        question = decoded(question_decoder, body)
        order = decoded(order_decoder, question.topic)
        if self.back.move(order, self._loop.time()):
            log.info("moves to the place that plan %d has for it", order.number)
        link.answer(ANSWER, encode(Answer(question.number, encode(self.report()))))

    # Who is there ---------------------------------------------------------------------------------

    def _came_up(self, name: str, role: NodeRole, address: Address) -> None:
        """Brokers open the connections that boxes and questions come on."""

    def _is_at(self, name: str, role: NodeRole, address: Address) -> None:
        """It is dialed, for gossip."""

    def _went_down(self, name: str, role: NodeRole, *, is_alive: bool) -> None:
        self._is_live(name, role, is_alive)

    def _is_live(self, name: str, role: NodeRole, is_alive: bool) -> None:
        if role == "matcher":
            self._tell(name, is_alive=is_alive)

    def _has_left(self, name: str, role: NodeRole) -> None:
        """Its record went with its life. A broker that left may come back for its boxes."""

    def _is_forgotten(self, name: str) -> None:
        self.back.matcher_tells(name, None)
        self.back.forget(name)

    def _tell(self, name: str, *, is_alive: bool) -> None:
        state = self.gossip.state(name)
        record = state.value(MATCHER) if is_alive and state is not None else None
        self.back.matcher_tells(name, record)

    def _has_been_told(self, role: NodeRole) -> None:  # noqa: ARG002
        self._is_told.set()

    # What it tells --------------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        joining = self.back.joining
        return (Phase.JOINING if joining is None else joining.phase).name.lower()

    @property
    def _plan(self) -> int:
        return 0 if self.back.joining is None else self.back.joining.record.plan

    @property
    def _is_moving(self) -> bool:
        return self.back.joining is not None and self.back.joining.record.move is not None

    def report(self) -> NodeReport:
        answering = self.back.answering
        return NodeReport(
            name=self.name,
            version=__version__,
            roles=("matcher",),
            uptime_seconds=self._loop.time() - self._started_at,
            counters={},
            gauges={},
            matcher=MatcherReport(
                phase=self.phase,
                plan=self._plan,
                is_moving=self._is_moving,
                boxes=sum(map(len, answering.spaces.values())),
                points_waiting=answering.points_waiting,
                points_answered=answering.points_answered,
                points_unsure=answering.points_unsure,
                busy_share=answering.busy_share,
                parts=tuple(parts_of(self.back)),
            ),
        )
