"""Matchers on real connections, asked by a broker side on real connections."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

import numpy as np
import pytest

from dovetail.api.reports import NodeRole
from dovetail.attributes.partition import Bounds
from dovetail.cluster.addresses import Address
from dovetail.cluster.frame_body import decoded, encode
from dovetail.cluster.link_settings import LinkSettings
from dovetail.cluster.node_settings import NodeSettings
from dovetail.cluster.peer_link import PeerLink
from dovetail.cluster.query_messages import (
    DRAIN,
    QUERY,
    QUERY_REPLY,
    NodeQuery,
    query_reply_decoder,
)
from dovetail.errors import ConfigError
from dovetail.matcher.broker_side import BrokerSide
from dovetail.matcher.held_boxes import load_kernels
from dovetail.matcher.layout import Layout, layouts_of
from dovetail.matcher.matcher_agent import MatcherAgent
from dovetail.matcher.question_batch import Verdict
from dovetail.matcher.segment_tables import Phase
from support.clusters.agent_nodes import RecordingAgent, run, until

LAYOUT = Layout("s", (Bounds(0, 100), Bounds(0, 100)), (0, 1))
LAYOUTS = layouts_of([LAYOUT])


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    """Loaded before anybody waits for an answer, as a matcher does."""
    load_kernels()


class BrokerSideAgent(RecordingAgent):
    """The broker side on real connections."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "broker")
        self.side: BrokerSide[int] = BrokerSide(
            name, LAYOUTS, 1, self.transport.send, Random(1), is_listing=True
        )
        self.verdicts: dict[int, Verdict[int]] = {}
        self.reports: list[bytes] = []

    def _turn(self) -> None:
        super()._turn()
        self.flush()

    def flush(self) -> None:
        self.side.turn(self._loop.time())
        for verdict in self.side.questions.take_verdicts():
            self.verdicts[verdict.tag] = verdict

    def _handle_frame(self, link: PeerLink, kind: int, body: bytes) -> None:
        super()._handle_frame(link, kind, body)
        if kind == QUERY:
            return  # of people, which it does not answer
        assert link.is_dialed, "matchers ask for nothing"
        if kind == QUERY_REPLY:
            self.reports.append(decoded(query_reply_decoder, body).report)
        else:
            self.side.answered(link.name, kind, body, self._loop.time())

    def _came_up(self, name: str, role: NodeRole, address: Address) -> None:
        super()._came_up(name, role, address)
        self.side.matcher_is_up(name)

    def _went_down(self, name: str, role: NodeRole, *, is_alive: bool) -> None:
        super()._went_down(name, role, is_alive=is_alive)
        self.side.matcher_is_down(name, self._loop.time())

    def _is_live(self, name: str, role: NodeRole, is_alive: bool) -> None:
        super()._is_live(name, role, is_alive)
        state = self.gossip.state(name)
        record = state.value("matcher") if is_alive and state is not None else None
        self.side.receive_record(name, record, self._loop.time())

    def serving(self) -> set[str]:
        records = self.side.directory.records.items()
        return {name for name, record in records if record.phase is Phase.SERVING}

    def places(self) -> int:
        """Who has one of its own: two that come at once may choose the same at first."""
        return len({record.tokens[LAYOUT.id] for record in self.side.directory.records.values()})


@asynccontextmanager
async def broker(name: str = "broker") -> AsyncIterator[BrokerSideAgent]:
    agent = BrokerSideAgent(name)
    await agent.start()
    try:
        yield agent
    finally:
        await agent.stop()


@asynccontextmanager
async def matcher(
    name: str,
    *join: RecordingAgent,
    join_seconds: float = 5.0,
    on_drain: Callable[[], None] | None = None,
) -> AsyncIterator[MatcherAgent]:
    settings = NodeSettings(
        LinkSettings(name=name, port=0, role="matcher"),
        tuple(other.transport.address for other in join),
        join_seconds_max=join_seconds,
    )
    agent = MatcherAgent(settings, LAYOUTS, incarnation=1, random=Random(name), on_drain=on_drain)
    try:
        await agent.start()
        yield agent
    finally:
        agent.hurry()
        await agent.stop()


def boxes_around(side: BrokerSide[int], count: int) -> Callable[[float, float], set[int]]:
    """Squares of 4, some of which overlap; and what a look at all of them finds."""
    draws = np.random.default_rng(1)
    lows = draws.uniform(0, 96, (count, 2))
    for number, low in enumerate(lows.tolist()):
        side.put(LAYOUT.id, number, low, [low[0] + 4, low[1] + 4])

    def find(x: float, y: float) -> set[int]:
        point = np.array([x, y])
        return {*np.flatnonzero(((lows <= point) & (point < lows + 4)).all(axis=1)).tolist()}

    return find


async def ask(one: BrokerSideAgent, *points: tuple[float, float]) -> list[set[int] | None]:
    """The boxes of each; None: nobody is sure."""
    one.verdicts.clear()
    for tag, point in enumerate(points):
        one.side.questions.submit(LAYOUT.id, point, [one.name], tag)
    one.flush()
    await until(lambda: len(one.verdicts) == len(points), "all are answered for")
    found: list[set[int] | None] = []
    for tag in range(len(points)):
        verdict = one.verdicts[tag]
        numbers = verdict.boxes.get(one.name)
        is_broad = one.name in verdict.unsure
        found.append(None if is_broad else set() if numbers is None else {*numbers.boxes.tolist()})
    return found


def test_two_matchers_know_the_boxes_of_a_broker_and_one_leaves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    points = [(float(x), float(y)) for x in range(1, 100, 9) for y in range(1, 100, 9)]

    async def work() -> None:
        async with broker() as one:
            find = boxes_around(one.side, 500)
            expected = [find(*point) for point in points]
            assert any(expected)
            async with matcher("a", one) as first, matcher("b", one) as second:
                await until(
                    lambda: one.serving() == {"a", "b"} and one.places() == 2,
                    "both are fed, and serve",
                )
                assert await ask(one, *points) == expected
                for agent in (first, second):
                    assert agent.side.answers.points_answered
                    assert not agent.side.answers.points_unsure
                    assert set(agent.side.directory.records) == {"a", "b"}
                leaving = asyncio.create_task(first.stop())
                while not leaving.done():
                    assert await ask(one, *points) == expected
                    await asyncio.sleep(0.05)
                await until(lambda: one.state_of("a") == "left", "it is gone")
                assert await ask(one, *points) == expected
                assert "ended before it had handed over" not in caplog.text
        assert "leaving: answers until brokers have" in caplog.text

    run(work)


def test_what_a_matcher_tells_of_itself(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with broker() as one:
            boxes_around(one.side, 10)
            async with matcher("a", one) as first:
                await until(lambda: one.serving() == {"a"}, "it serves")
                one.transport.send("a", QUERY, encode(NodeQuery(7, b"")))
                await until(lambda: one.reports, "it answers")
                report = first.report()
                assert (report.roles, report.name) == (("matcher",), "a")
                assert report.matcher is not None
                assert (report.matcher.phase, report.matcher.boxes) == ("serving", 10)
        assert "ended before it had handed over all boxes" in caplog.text  # it was in a hurry

    run(work)


def test_who_asks_a_matcher_hears_of_all_nodes() -> None:
    async def work() -> None:
        async with broker() as one, matcher("a", one) as first, matcher("b", one) as second:
            await until(lambda: {"b", "broker"} <= first.transport.connected, "they meet")
            report = await first.queries.cluster()
            assert (report.cluster, report.asked) == ("dovetail", "a")
            names = [(entry.name, entry.role, entry.state) for entry in report.nodes]
            assert names == [
                ("a", "matcher", "alive"),
                ("b", "matcher", "alive"),
                ("broker", "broker", "alive"),
            ]
            own, other, silent = report.nodes
            assert (own.report is not None, silent.report) == (True, None)
            assert other.report is not None
            assert other.report.name == "b"
            assert other.address == str(second.transport.address)

    run(work)


def test_who_is_to_leave_answers_and_says_so() -> None:
    async def work() -> None:
        told: list[str] = []
        async with (
            broker() as one,
            matcher("a", one, on_drain=lambda: told.append("leave")),
            matcher("b", one),
        ):
            await until(lambda: one.serving() == {"a", "b"}, "they serve")
            for name in ("a", "b"):
                assert one.transport.send(name, DRAIN, encode(NodeQuery(1, b"")))
            await until(lambda: len(one.reports) == 2, "they answer")
            assert told == ["leave"]

    run(work)


def test_other_spaces_are_begun_anew() -> None:
    other = Layout("other", (Bounds(0, 1),), (0,))

    async def work() -> None:
        async with broker() as one:
            boxes_around(one.side, 10)
            async with matcher("a", one) as first:
                await until(lambda: one.serving() == {"a"}, "it serves")
                first.change(layouts_of([other]))
                assert await ask(one, (1.0, 1.0)) == [None]
                first.change(layouts_of([LAYOUT, other]))
                spaces = first.side.answers.spaces
                await until(lambda: len(spaces[LAYOUT.id]) == 10, "it is fed again")

    run(work)


def test_one_whom_nobody_tells_begins_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with matcher("a") as first:
            assert first.side.lifecycle is not None
            assert not first.brokers()
        stranger = RecordingAgent("b", "broker")
        await stranger.start()
        address = stranger.transport.address
        await stranger.stop()
        settings = NodeSettings(
            LinkSettings(name="a", port=0, role="matcher"), (address,), join_seconds_max=0.1
        )
        late = MatcherAgent(settings, LAYOUTS, incarnation=1, random=Random(1))
        await late.start()
        await late.stop()
        assert "joined without other nodes after 0.1 s" in caplog.text

    run(work)


def test_one_that_is_refused_does_not_begin() -> None:
    async def work() -> None:
        async with broker() as one:
            with pytest.raises(ConfigError, match="there are two nodes with the name broker"):
                async with matcher("broker", one, join_seconds=1.0):
                    pass

    run(work)
