"""A matcher in a live cluster, driven by gossip, real connections and the clock.

    transport, gossip (cluster/)              matcher_side.py
      brokers' FEED and QUESTION        ->      boxes, questions; jobs are done between reads
      records of other matchers         ->      the directory of matchers
      its own record                    <-      its phase and tokens
      LOADS, on brokers' connections    <-      how busy it is

Rules:

- It joins the segment tables after the first gossip from another node; at once without seeds.
- Jobs run in slices of the loop's time, so that frames come in meanwhile.
- A leaving matcher hands over first: it ends when all brokers have released it, or after a while.
  `dovetail drain` makes a broker tell it to leave (DRAIN).
- `dovetail plan --apply` makes a broker give it another place (MOVE).
- It keeps nothing on disk. After a restart, brokers feed it again.
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
from dovetail.cluster.node_queries import NodeQueries
from dovetail.cluster.node_settings import NodeSettings
from dovetail.cluster.peer_link import PeerLink
from dovetail.cluster.query_messages import DRAIN, MOVE, QUERY_REPLY, QueryReply, query_decoder
from dovetail.errors import PeerError
from dovetail.matcher.layout import Layout
from dovetail.matcher.limits import (
    MATCHER_LEAVE_SECONDS_MAX,
    MATCHER_LINGER_SECONDS,
    MATCHER_SLICE_SECONDS,
)
from dovetail.matcher.matcher_messages import ANSWER, LOADS
from dovetail.matcher.matcher_side import MatcherSide
from dovetail.matcher.relocation import order_decoder
from dovetail.matcher.segment_report import parts_of
from dovetail.matcher.segment_tables import MATCHER, Phase

log = logging.getLogger("dovetail.matcher")


class MatcherQueries(NodeQueries):
    """A matcher's reports to other nodes."""

    def __init__(self, agent: "MatcherAgent") -> None:
        super().__init__(agent)
        self._matcher = agent

    def node(self) -> NodeReport:
        return self._matcher.report()


class MatcherAgent(NodeAgent):
    """One life of a matcher."""

    def __init__(
        self,
        settings: NodeSettings,
        layouts: Mapping[str, Layout],
        *,
        incarnation: int,
        random: Random,
        on_drain: Callable[[], None] | None = None,
    ) -> None:
        """`on_drain` is called when a broker sends DRAIN. It should lead to `stop`."""
        super().__init__(settings, settings.links, incarnation=incarnation, random=random)
        self.side = MatcherSide(self.name, layouts, self._loop.time())
        self.queries = MatcherQueries(self)
        self._started_at = self._loop.time()
        self._on_drain = on_drain
        self._has_gossip = asyncio.Event()
        self._is_gone = asyncio.Event()
        self._is_hurried = asyncio.Event()
        self._is_leaving = False
        self._is_working = False

    # Its life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the cluster and the segment tables. Brokers begin to feed it."""
        await self._listen()
        has_seeds = self._dial_seeds()
        self._turn()
        if has_seeds and not await self._await_others(self._has_gossip):
            log.warning("joined without other nodes after %g s", self._settings.join_seconds_max)
        self.side.join(self._loop.time())

    async def stop(self) -> None:
        """Hand over to other matchers if brokers are there, and leave the cluster."""
        self.side.leave(self._loop.time())
        self._is_leaving = True
        if self.brokers():
            log.info("leaving: answers until brokers have fed its boxes to other matchers")
            await self._hand_over()
        await self._say_goodbye(keeps=False)

    async def _hand_over(self) -> None:
        gone = asyncio.create_task(self._is_gone.wait())
        hurried = asyncio.create_task(self._is_hurried.wait())
        seconds_max = MATCHER_LEAVE_SECONDS_MAX + MATCHER_LINGER_SECONDS
        done, _ = await asyncio.wait(
            {gone, hurried}, timeout=seconds_max, return_when=asyncio.FIRST_COMPLETED
        )
        for task in (gone, hurried):
            task.cancel()
        if gone not in done:
            log.warning("ended before it had handed over all boxes; brokers search them themselves")

    def hurry(self) -> None:
        """Do not wait for brokers when leaving."""
        self._is_hurried.set()

    def change(self, layouts: Mapping[str, Layout]) -> None:
        """Begin again with other spaces. Brokers dial again, and so feed it from the start."""
        for name in self.brokers():
            self.transport.hang_up(name, "it has other spaces now")
        self.side = MatcherSide(self.name, layouts, self._loop.time())
        for name in self.gossip.live():
            if self.role_of(name) == "matcher":
                self._tell(name, is_alive=True)
        self.side.join(self._loop.time())

    # Turns ----------------------------------------------------------------------------------------

    def _turn(self) -> None:
        super()._turn()
        now = self._loop.time()
        brokers = self.brokers()
        loads, record = self.side.tick(now, brokers)
        if record is not None:
            self.gossip.put(MATCHER, record)
        if loads is not None:
            for name in brokers:
                self.transport.answer(name, LOADS, loads)
        if self._is_leaving:
            lifecycle = self.side.lifecycle
            if not brokers or lifecycle is None or lifecycle.is_gone(now):
                self._is_gone.set()
        self._work_soon()  # questions that have waited long enough for boxes

    def brokers(self) -> list[str]:
        """Return the brokers that are live."""
        live = {*self.gossip.live(), *self.transport.connected}
        return [name for name in live if self.role_of(name) == "broker"]

    def _work_soon(self) -> None:
        if not self._is_working:
            self._is_working = True
            self._loop.call_soon(self._work)

    def _work(self) -> None:
        """Do jobs for one slice of time; continue after pending reads."""
        self._is_working = False
        answers = self.side.answers
        begun_at = time.perf_counter()
        until = begun_at + MATCHER_SLICE_SECONDS
        while begun_at < until:
            job = answers.next_job(self._loop.time())
            if job is None:
                return
            for asker, body in answers.answer(job):
                # An asker that is not connected asks another matcher.
                self.transport.answer(asker, ANSWER, body)
            ended_at = time.perf_counter()
            answers.record_job(job, ended_at - begun_at)
            begun_at = ended_at
        self._work_soon()

    # Frames ---------------------------------------------------------------------------------------

    def _handle_frame(self, link: PeerLink, kind: int, body: bytes) -> None:
        if self.queries.takes(link, kind, body):
            return
        if link.is_dialed or link.hello.role != "broker":
            raise PeerError(f"a frame of kind {kind} for a matcher, which brokers alone have")
        if kind == DRAIN:
            question = decoded(query_decoder, body)
            link.answer(QUERY_REPLY, encode(QueryReply(question.number, encode(self.report()))))
            if self._on_drain is not None:
                self._on_drain()
            return
        if kind == MOVE:
            self._move(link, body)
            return
        begun_at = time.perf_counter()
        self.side.receive(link.name, kind, body, link.answer, self._loop.time())
        self.side.answers.record_other_work(time.perf_counter() - begun_at)
        self._work_soon()

    def _move(self, link: PeerLink, body: bytes) -> None:
        question = decoded(query_decoder, body)
        order = decoded(order_decoder, question.topic)
        if self.side.move(order, self._loop.time()):
            log.info("moving to its place in plan %d", order.number)
        link.answer(QUERY_REPLY, encode(QueryReply(question.number, encode(self.report()))))

    # Who is there ---------------------------------------------------------------------------------

    def _came_up(self, name: str, role: NodeRole, address: Address) -> None:
        """Nothing to do: boxes and questions come on connections that brokers open."""

    def _address_known(self, name: str, role: NodeRole, address: Address) -> None:
        """Nothing to do: it is dialed, for gossip."""

    def _went_down(self, name: str, role: NodeRole, *, is_alive: bool) -> None:
        self._is_live(name, role, is_alive)

    def _is_live(self, name: str, role: NodeRole, is_alive: bool) -> None:
        if role == "matcher":
            self._tell(name, is_alive=is_alive)

    def _has_left(self, name: str, role: NodeRole) -> None:
        """Nothing to do: a matcher's record ends with it, and a broker may come back."""

    def _is_forgotten(self, name: str) -> None:
        self.side.receive_record(name, None)
        self.side.forget(name)

    def _tell(self, name: str, *, is_alive: bool) -> None:
        state = self.gossip.state(name)
        record = state.value(MATCHER) if is_alive and state is not None else None
        self.side.receive_record(name, record)

    def _gossip_answered(self, role: NodeRole) -> None:  # noqa: ARG002
        self._has_gossip.set()

    # What it tells --------------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        lifecycle = self.side.lifecycle
        return (Phase.JOINING if lifecycle is None else lifecycle.phase).name.lower()

    @property
    def _plan(self) -> int:
        return 0 if self.side.lifecycle is None else self.side.lifecycle.record.plan

    @property
    def _is_moving(self) -> bool:
        return self.side.lifecycle is not None and self.side.lifecycle.record.move is not None

    def report(self) -> NodeReport:
        answers = self.side.answers
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
                boxes=sum(map(len, answers.spaces.values())),
                points_waiting=answers.points_waiting,
                points_answered=answers.points_answered,
                points_unsure=answers.points_unsure,
                busy_share=answers.busy_share,
                parts=tuple(parts_of(self.side)),
            ),
        )
