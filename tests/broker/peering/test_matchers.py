"""A broker and matchers: they are no peers of its mesh, and who asks them hears of them."""

from pathlib import Path

import pytest

from dovetail.api.reports import DrainReport, NodeReport
from dovetail.broker.peering.broker_agent import Agent
from dovetail.cluster.frame_body import decoded, encode
from dovetail.cluster.peer_link import Link
from dovetail.cluster.query_messages import ANSWER, DRAIN, QUESTION, Answer, question_decoder
from dovetail.node.broker import Node
from support.clusters.agent_nodes import BareAgent, address_of, bare, run, running, until

FRAME = 90


class Asker:
    """In the place of who asks matchers."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def matcher_is_up(self, name: str) -> None:
        self.events.append(("up", name))

    def matcher_is_down(self, name: str) -> None:
        self.events.append(("down", name))

    def matcher_tells(self, name: str, record: bytes | None) -> None:
        self.events.append(("tells", name, record))

    def matcher_answered(self, name: str, kind: int, body: bytes) -> None:
        self.events.append(("answered", name, kind, body))


def asker_of(node: Node) -> tuple[Agent, Asker]:
    agent = node.agent
    assert agent is not None
    asker = agent.narrowing = Asker()
    return agent, asker


def told_address(agent: Agent) -> bytes | None:
    state = agent.gossip.state("m")
    return None if state is None else state.value("address")


def test_a_matcher_is_no_peer(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path / "one", "one") as one:
            agent, asker = asker_of(one)
            async with (
                bare("m", "matcher", address_of(one)) as matcher,
                running(tmp_path / "two", "two", one) as two,
            ):
                matcher.gossip.put("matcher", b"first")
                await until(lambda: ("tells", "m", b"first") in asker.events, "it tells")
                matcher.gossip.put("matcher", b"second")
                await until(lambda: ("tells", "m", b"second") in asker.events, "it tells more")
                for node in (one, two):
                    assert node.agent is not None
                    assert "m" not in node.agent.mesh.names()
                    assert [peer.name for peer in node.agent.asking.peers()] != ["m"]
                assert agent.mesh.is_synchronous
                await until(lambda: agent.transport.send("m", FRAME, b"asked"), "it is connected")
                await until(lambda: ("frame", "one", FRAME, b"asked") in matcher.events, "it hears")
                matcher.links["one"].answer(FRAME, b"answered")
                await until(
                    lambda: ("answered", "m", FRAME, b"answered") in asker.events, "it answers"
                )
            await until(lambda: ("tells", "m", None) in asker.events, "it has left")
            told = [event for event in asker.events if event[0] != "answered"]
            assert told == [
                ("up", "m"),
                ("tells", "m", b"first"),
                ("tells", "m", b"second"),
                ("tells", "m", None),
                ("down", "m"),
            ]
            assert agent.mesh.names() in ((), ("two",))

    run(work)


def test_a_matcher_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    """Its connection ends before gossip knows: it is down, and what it told still holds."""

    async def work() -> None:
        async with running(tmp_path / "one", "one") as one:
            agent, asker = asker_of(one)
            async with bare("m", "matcher", address_of(one)) as matcher:
                matcher.gossip.put("matcher", b"first")
                await until(lambda: ("tells", "m", b"first") in asker.events, "it tells")
                await matcher.transport.stop()
                await until(lambda: ("down", "m") in asker.events, "it is down")
                assert ("tells", "m", None) not in asker.events
                assert agent.mesh.is_synchronous

    run(work)


def test_the_report_of_a_cluster_has_its_matchers(tmp_path: Path) -> None:
    report = NodeReport("m", "1", ("matcher",), 1.0, {}, {})

    class Answering(BareAgent):
        def _take(self, link: Link, kind: int, body: bytes) -> None:
            assert kind == QUESTION
            number = decoded(question_decoder, body).number
            link.answer(ANSWER, encode(Answer(number, encode(report))))

    async def work() -> None:
        async with running(tmp_path / "one", "one") as one:
            matcher = Answering("m", "matcher", address_of(one))
            await matcher.start()
            agent, _ = asker_of(one)
            await until(
                lambda: "m" in agent.transport.connected and told_address(agent), "they meet"
            )
            there, here = (await agent.asking.cluster()).nodes
            assert (there.name, there.role, there.report) == ("m", "matcher", report)
            assert (here.name, here.role) == ("one", "broker")
            assert there.address == str(matcher.transport.address)
            assert (await agent.asking.route("a/b")).peers == ()
            await matcher.stop()
            await until(lambda: agent.state_of("m") == "left", "it leaves")

    run(work)


def test_a_matcher_does_not_get_the_name_of_a_broker(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path / "one", "one") as one:
            agent, asker = asker_of(one)
            agent.mesh.peer_is_at("two", "127.0.0.1:9")
            async with bare("two", "matcher", address_of(one), incarnation=9) as matcher:
                await until(lambda: matcher.transport.refusal, "it is refused")
                assert "two is the name of a broker" in str(matcher.transport.refusal)
            assert agent.mesh.names() == ("two",)
            assert asker.events == []

    run(work)


def test_a_matcher_asks_for_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            running(tmp_path / "one", "one") as one,
            bare("m", "matcher", address_of(one)) as matcher,
        ):
            await until(lambda: matcher.transport.send("one", FRAME, b"x"), "they meet")
            await until(lambda: ("down", "one", "broker", True) in matcher.events, "it is closed")

    run(work)


def test_a_broker_that_knows_matchers_alone_waits_for_brokers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with bare("m", "matcher") as matcher:
            address = matcher.transport.address
            async with running(tmp_path / "one", "one", address, join_seconds=1.0):
                assert ("told", "broker") in matcher.events
        assert "began without the others after 1 s" in caplog.text

    run(work)


def test_a_matcher_is_told_to_leave(tmp_path: Path) -> None:
    class Leaving(BareAgent):
        """Who answers if it is told to."""

        answers = False

        def _take(self, link: Link, kind: int, body: bytes) -> None:
            super()._take(link, kind, body)
            if kind == DRAIN and self.answers:
                number = decoded(question_decoder, body).number
                link.answer(ANSWER, encode(Answer(number, b"")))

    async def work() -> None:
        async with (
            running(tmp_path / "one", "one") as one,
            running(tmp_path / "two", "two", one),
            bare("other", "matcher", address_of(one)),
        ):
            agent, _ = asker_of(one)
            drain = agent.asking.drain
            assert await drain("one") == DrainReport("one", "broker", ())
            matcher = Leaving("m", "matcher", address_of(one))
            await matcher.start()
            await until(lambda: {"m", "other", "two"} <= agent.transport.connected, "they meet")
            await until(lambda: agent.state_of("m") == "alive", "it is heard")
            await until(lambda: agent.state_of("other") == "alive", "the other one is heard")
            assert await drain("two") == DrainReport("two", "broker", ("m", "other"))
            assert await drain("nobody") == DrainReport("nobody", "unknown", ("m", "other"))
            assert await drain("m") == DrainReport("m", "silent", ("other",))
            matcher.answers = True
            assert await drain("m") == DrainReport("m", "leaves", ("other",))
            await matcher.stop()
            await until(lambda: agent.state_of("m") == "left", "it leaves")
            assert await drain("m") == DrainReport("m", "left", ("other",))

    run(work)
