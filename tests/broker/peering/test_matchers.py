"""A broker and matchers: they are no peers of its mesh, and its matcher client hears of them."""

from pathlib import Path

import pytest

from dovetail.api.reports import DrainReport, NodeReport
from dovetail.broker.peering.broker_agent import BrokerAgent
from dovetail.cluster.frame_body import decoded, encode
from dovetail.cluster.peer_link import PeerLink
from dovetail.cluster.query_messages import DRAIN, QUERY, QUERY_REPLY, QueryReply, query_decoder
from dovetail.node.broker import BrokerNode
from support.clusters.agent_nodes import RecordingAgent, address_of, bare, run, running, until

FRAME = 90


class MatcherRecorder:
    """In the place of who asks matchers."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def matcher_is_up(self, name: str) -> None:
        self.events.append(("up", name))

    def matcher_is_down(self, name: str) -> None:
        self.events.append(("down", name))

    def receive_record(self, name: str, record: bytes | None) -> None:
        self.events.append(("tells", name, record))

    def matcher_answered(self, name: str, kind: int, body: bytes) -> None:
        self.events.append(("answered", name, kind, body))


def recorder_of(node: BrokerNode) -> tuple[BrokerAgent, MatcherRecorder]:
    agent = node.agent
    assert agent is not None
    recorder = agent.matcher_client = MatcherRecorder()
    return agent, recorder


def told_address(agent: BrokerAgent) -> bytes | None:
    state = agent.gossip.state("m")
    return None if state is None else state.value("address")


def test_a_matcher_is_no_peer(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path / "one", "one") as one:
            agent, recorder = recorder_of(one)
            async with (
                bare("m", "matcher", address_of(one)) as matcher,
                running(tmp_path / "two", "two", one) as two,
            ):
                matcher.gossip.put("matcher", b"first")
                await until(lambda: ("tells", "m", b"first") in recorder.events, "it tells")
                matcher.gossip.put("matcher", b"second")
                await until(lambda: ("tells", "m", b"second") in recorder.events, "it tells more")
                for node in (one, two):
                    assert node.agent is not None
                    assert "m" not in node.agent.mesh.names()
                    assert [peer.name for peer in node.agent.queries.peers()] != ["m"]
                assert agent.mesh.is_synchronous
                await until(lambda: agent.transport.send("m", FRAME, b"asked"), "it is connected")
                await until(lambda: ("frame", "one", FRAME, b"asked") in matcher.events, "it hears")
                matcher.links["one"].answer(FRAME, b"answered")
                await until(
                    lambda: ("answered", "m", FRAME, b"answered") in recorder.events, "it answers"
                )
            await until(lambda: ("tells", "m", None) in recorder.events, "it has left")
            told = [event for event in recorder.events if event[0] != "answered"]
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
            agent, recorder = recorder_of(one)
            async with bare("m", "matcher", address_of(one)) as matcher:
                matcher.gossip.put("matcher", b"first")
                await until(lambda: ("tells", "m", b"first") in recorder.events, "it tells")
                await matcher.transport.stop()
                await until(lambda: ("down", "m") in recorder.events, "it is down")
                assert ("tells", "m", None) not in recorder.events
                assert agent.mesh.is_synchronous

    run(work)


def test_the_report_of_a_cluster_has_its_matchers(tmp_path: Path) -> None:
    report = NodeReport("m", "1", ("matcher",), 1.0, {}, {})

    class Answering(RecordingAgent):
        def _handle_frame(self, link: PeerLink, kind: int, body: bytes) -> None:
            assert kind == QUERY
            number = decoded(query_decoder, body).number
            link.answer(QUERY_REPLY, encode(QueryReply(number, encode(report))))

    async def work() -> None:
        async with running(tmp_path / "one", "one") as one:
            matcher = Answering("m", "matcher", address_of(one))
            await matcher.start()
            agent, _ = recorder_of(one)
            await until(
                lambda: "m" in agent.transport.connected and told_address(agent), "they meet"
            )
            there, here = (await agent.queries.cluster()).nodes
            assert (there.name, there.role, there.report) == ("m", "matcher", report)
            assert (here.name, here.role) == ("one", "broker")
            assert there.address == str(matcher.transport.address)
            assert (await agent.queries.route("a/b")).peers == ()
            await matcher.stop()
            await until(lambda: agent.state_of("m") == "left", "it leaves")

    run(work)


def test_a_matcher_does_not_get_the_name_of_a_broker(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path / "one", "one") as one:
            agent, recorder = recorder_of(one)
            agent.mesh.peer_is_at("two", "127.0.0.1:9")
            async with bare("two", "matcher", address_of(one), incarnation=9) as matcher:
                await until(lambda: matcher.transport.refusal, "it is refused")
                assert "two is the name of a broker" in str(matcher.transport.refusal)
            assert agent.mesh.names() == ("two",)
            assert recorder.events == []

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
        assert "started without these brokers after 1 s" in caplog.text

    run(work)


def test_a_matcher_is_told_to_leave(tmp_path: Path) -> None:
    class Leaving(RecordingAgent):
        """Who answers if it is told to."""

        answers = False

        def _handle_frame(self, link: PeerLink, kind: int, body: bytes) -> None:
            super()._handle_frame(link, kind, body)
            if kind == DRAIN and self.answers:
                number = decoded(query_decoder, body).number
                link.answer(QUERY_REPLY, encode(QueryReply(number, b"")))

    async def work() -> None:
        async with (
            running(tmp_path / "one", "one") as one,
            running(tmp_path / "two", "two", one),
            bare("other", "matcher", address_of(one)),
        ):
            agent, _ = recorder_of(one)
            drain = agent.queries.drain
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
