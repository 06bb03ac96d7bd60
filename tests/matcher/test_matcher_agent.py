"""Matchers on real connections, asked by a broker's part of the plane on real connections."""

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
from dovetail.cluster.link_settings import ClusterLinks
from dovetail.cluster.node_settings import ClusterPart
from dovetail.cluster.peer_link import Link
from dovetail.cluster.query_messages import ANSWER, DRAIN, QUESTION, Question, answer_decoder
from dovetail.errors import ConfigError
from dovetail.matcher.broker_side import Front
from dovetail.matcher.held_boxes import load_kernels
from dovetail.matcher.layout import Layout, layouts_of
from dovetail.matcher.matcher_agent import MatcherAgent
from dovetail.matcher.question_batch import Verdict
from dovetail.matcher.segment_tables import Phase
from support.clusters.agent_nodes import BareAgent, run, until

LAYOUT = Layout("s", (Bounds(0, 100), Bounds(0, 100)), (0, 1))
LAYOUTS = layouts_of([LAYOUT])


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    """Loaded before anybody waits for an answer, as a matcher does."""
    load_kernels()


class FrontBroker(BareAgent):
    """A broker as far as matchers see it."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "broker")
        self.front: Front[int] = Front(
            name, LAYOUTS, 1, self.transport.send, Random(1), is_listing=True
        )
        self.verdicts: dict[int, Verdict[int]] = {}
        self.reports: list[bytes] = []

    def _turn(self) -> None:
        super()._turn()
        self.flush()

    def flush(self) -> None:
        self.front.turn(self._loop.time())
        for verdict in self.front.asking.take_verdicts():
            self.verdicts[verdict.tag] = verdict

    def _take(self, link: Link, kind: int, body: bytes) -> None:
        super()._take(link, kind, body)
        if kind == QUESTION:
            return  # of people, which it does not answer
        assert link.is_dialed, "matchers ask for nothing"
        if kind == ANSWER:
            self.reports.append(decoded(answer_decoder, body).report)
        else:
            self.front.answered(link.name, kind, body, self._loop.time())

    def _came_up(self, name: str, role: NodeRole, address: Address) -> None:
        super()._came_up(name, role, address)
        self.front.matcher_is_up(name)

    def _went_down(self, name: str, role: NodeRole, *, is_alive: bool) -> None:
        super()._went_down(name, role, is_alive=is_alive)
        self.front.matcher_is_down(name, self._loop.time())

    def _is_live(self, name: str, role: NodeRole, is_alive: bool) -> None:
        super()._is_live(name, role, is_alive)
        state = self.gossip.state(name)
        record = state.value("matcher") if is_alive and state is not None else None
        self.front.matcher_tells(name, record, self._loop.time())

    def serving(self) -> set[str]:
        records = self.front.view.records.items()
        return {name for name, record in records if record.phase is Phase.SERVING}

    def places(self) -> int:
        """Who has one of its own: two that come at once may choose the same at first."""
        return len({record.tokens[LAYOUT.id] for record in self.front.view.records.values()})


@asynccontextmanager
async def broker(name: str = "broker") -> AsyncIterator[FrontBroker]:
    agent = FrontBroker(name)
    await agent.start()
    try:
        yield agent
    finally:
        await agent.stop()


@asynccontextmanager
async def matcher(
    name: str,
    *join: BareAgent,
    join_seconds: float = 5.0,
    on_drain: Callable[[], None] | None = None,
) -> AsyncIterator[MatcherAgent]:
    part = ClusterPart(
        ClusterLinks(name=name, port=0, role="matcher"),
        tuple(other.transport.address for other in join),
        join_seconds_max=join_seconds,
    )
    agent = MatcherAgent(part, LAYOUTS, incarnation=1, random=Random(name), on_drain=on_drain)
    try:
        await agent.start()
        yield agent
    finally:
        agent.hurry()
        await agent.stop()


def boxes_around(front: Front[int], count: int) -> Callable[[float, float], set[int]]:
    """Squares of 4, some of which overlap; and what a look at all of them finds."""
    draws = np.random.default_rng(1)
    lows = draws.uniform(0, 96, (count, 2))
    for number, low in enumerate(lows.tolist()):
        front.put(LAYOUT.id, number, low, [low[0] + 4, low[1] + 4])

    def find(x: float, y: float) -> set[int]:
        point = np.array([x, y])
        return {*np.flatnonzero(((lows <= point) & (point < lows + 4)).all(axis=1)).tolist()}

    return find


async def ask(one: FrontBroker, *points: tuple[float, float]) -> list[set[int] | None]:
    """The boxes of each; None: nobody is sure."""
    one.verdicts.clear()
    for tag, point in enumerate(points):
        one.front.asking.submit(LAYOUT.id, point, [one.name], tag)
    one.flush()
    await until(lambda: len(one.verdicts) == len(points), "all are answered for")
    found: list[set[int] | None] = []
    for tag in range(len(points)):
        verdict = one.verdicts[tag]
        numbers = verdict.narrow.get(one.name)
        is_broad = one.name in verdict.broad
        found.append(None if is_broad else set() if numbers is None else {*numbers.boxes.tolist()})
    return found


def test_two_matchers_know_the_boxes_of_a_broker_and_one_leaves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    points = [(float(x), float(y)) for x in range(1, 100, 9) for y in range(1, 100, 9)]

    async def work() -> None:
        async with broker() as one:
            find = boxes_around(one.front, 500)
            expected = [find(*point) for point in points]
            assert any(expected)
            async with matcher("a", one) as first, matcher("b", one) as second:
                await until(
                    lambda: one.serving() == {"a", "b"} and one.places() == 2,
                    "both are fed, and serve",
                )
                assert await ask(one, *points) == expected
                for agent in (first, second):
                    assert agent.back.answering.points_answered
                    assert not agent.back.answering.points_unsure
                    assert set(agent.back.view.records) == {"a", "b"}
                leaving = asyncio.create_task(first.stop())
                while not leaving.done():
                    assert await ask(one, *points) == expected
                    await asyncio.sleep(0.05)
                await until(lambda: one.state_of("a") == "left", "it is gone")
                assert await ask(one, *points) == expected
                assert "goes before all have" not in caplog.text
        assert "leaves, and answers until brokers have" in caplog.text

    run(work)


def test_what_a_matcher_tells_of_itself(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with broker() as one:
            boxes_around(one.front, 10)
            async with matcher("a", one) as first:
                await until(lambda: one.serving() == {"a"}, "it serves")
                one.transport.send("a", QUESTION, encode(Question(7, b"")))
                await until(lambda: one.reports, "it answers")
                report = first.report()
                assert (report.roles, report.name) == (("matcher",), "a")
                assert report.matcher is not None
                assert (report.matcher.phase, report.matcher.boxes) == ("serving", 10)
        assert "goes before all have what it answered for" in caplog.text  # it was in a hurry

    run(work)


def test_who_asks_a_matcher_hears_of_all_nodes() -> None:
    async def work() -> None:
        async with broker() as one, matcher("a", one) as first, matcher("b", one) as second:
            await until(lambda: {"b", "broker"} <= first.transport.connected, "they meet")
            report = await first.asking.cluster()
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
                assert one.transport.send(name, DRAIN, encode(Question(1, b"")))
            await until(lambda: len(one.reports) == 2, "they answer")
            assert told == ["leave"]

    run(work)


def test_other_spaces_are_begun_anew() -> None:
    other = Layout("other", (Bounds(0, 1),), (0,))

    async def work() -> None:
        async with broker() as one:
            boxes_around(one.front, 10)
            async with matcher("a", one) as first:
                await until(lambda: one.serving() == {"a"}, "it serves")
                first.change(layouts_of([other]))
                assert await ask(one, (1.0, 1.0)) == [None]
                first.change(layouts_of([LAYOUT, other]))
                spaces = first.back.answering.spaces
                await until(lambda: len(spaces[LAYOUT.id]) == 10, "it is fed again")

    run(work)


def test_one_whom_nobody_tells_begins_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with matcher("a") as first:
            assert first.back.joining is not None
            assert not first.brokers()
        stranger = BareAgent("b", "broker")
        await stranger.start()
        address = stranger.transport.address
        await stranger.stop()
        part = ClusterPart(
            ClusterLinks(name="a", port=0, role="matcher"), (address,), join_seconds_max=0.1
        )
        late = MatcherAgent(part, LAYOUTS, incarnation=1, random=Random(1))
        await late.start()
        await late.stop()
        assert "began without the others after 0.1 s" in caplog.text

    run(work)


def test_one_that_is_refused_does_not_begin() -> None:
    async def work() -> None:
        async with broker() as one:
            with pytest.raises(ConfigError, match="there are two nodes with the name broker"):
                async with matcher("broker", one, join_seconds=1.0):
                    pass

    run(work)
