"""Brokers of a cluster in one process, each with its folder and its connections."""

import asyncio
import logging
import shutil
from pathlib import Path

import pytest

from dovetail.broker.store.journal import Batch, SessionRow
from dovetail.broker.store.sqlite import Store
from dovetail.cluster import gossip
from dovetail.cluster.agent import GOSSIP
from dovetail.cluster.frame_body import encode
from dovetail.cluster.membership import Delta, Record
from dovetail.cluster.query_messages import QueryReply
from dovetail.codec.packets import SESSION_NEVER_EXPIRES
from dovetail.errors import ConfigError, PeerError
from dovetail.messages import Message
from dovetail.node.broker import BrokerNode
from support.clusters.agent_nodes import run, running, until

JOIN_SECONDS = 3.0
"""For who is refused: it is told within a few dials, also on a busy machine."""


def keep_a_session(folder: Path) -> None:
    store = Store.open(folder, "process")
    row = SessionRow("kept", SESSION_NEVER_EXPIRES, 0.0, None, None)
    store.commit(Batch(1, sessions={1: row}))
    store.close()


def publish(node: BrokerNode, *, retain: bool = False) -> None:
    server = node._server
    assert server is not None
    server.update_clock()
    server.broker.publish(Message(b"a", b"x", qos=1, retain=retain))
    server.schedule_commit()


def test_a_member_that_never_returns_is_forgotten_with_its_outbox(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def work() -> None:
        async with running(tmp_path / "one", "one") as one:
            assert one.agent is not None
            mesh = one.agent.mesh
            keep_a_session(tmp_path / "two")
            async with running(tmp_path / "two", "two", one):
                await until(lambda: mesh.names() == ("two",), "they meet")
            await until(lambda: "two has left" in caplog.text, "it says goodbye")
        # Another life: of the other one nothing is heard, and its sketch is not known.
        async with running(tmp_path / "one", "one", forget_seconds=2.0) as one:
            assert one.agent is not None
            mesh = one.agent.mesh
            assert mesh.names() == ("two",)
            assert [peer.state for peer in one.agent.queries.peers()] == ["left"]
            publish(one)
            assert mesh.outbox("two").count == 1
            await until(lambda: not mesh.names(), "it is forgotten")
        assert "forgot two and dropped 1 publications for it" in caplog.text

    run(work)


def test_nothing_is_spooled_for_a_broker_that_left_without_sessions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def work() -> None:
        async with running(tmp_path / "one", "one") as one:
            async with running(tmp_path / "two", "two", one):
                await until(lambda: one.agent and one.agent.mesh.names() == ("two",), "they meet")
            await until(lambda: "two has left" in caplog.text, "it says goodbye")
            publish(one, retain=True)
        async with running(tmp_path / "one", "one") as one:
            assert one.agent is not None
            assert one.agent.mesh.names() == ()
            async with running(tmp_path / "two", "two", one) as two:
                await until(lambda: one.agent and one.agent.mesh.names() == ("two",), "it is back")
                server = two._server
                assert server is not None
                retained = server.broker.retained
                await until(lambda: len(retained) == 1, "it has what it missed")

    run(work)


def test_a_copied_folder_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with running(tmp_path / "one", "one"):
            pass
        shutil.copytree(tmp_path / "one", tmp_path / "copy")
        async with (
            running(tmp_path / "one", "one") as one,
            running(tmp_path / "three", "three", one) as three,
        ):
            assert one.agent is not None
            assert three.agent is not None
            met = {one.agent: ("three",), three.agent: ("one",)}
            await until(
                lambda: all(agent.mesh.names() == names for agent, names in met.items()),
                "they meet",
            )
            refusal = "the data folder of copy is a copy of that of one"
            with pytest.raises(ConfigError, match="the cluster does not let this node in"):
                async with running(tmp_path / "copy", "copy", three, join_seconds=JOIN_SECONDS):
                    pass
            assert f"copy is refused: {refusal}" in caplog.text
            assert f"refused by it: {refusal}" in caplog.text
            assert three.agent.mesh.names() == ("one",)
            assert "copy" not in three.agent.transport.connected
            # With a folder of its own the same name is welcome.
            async with running(tmp_path / "other", "copy", three):
                await until(
                    lambda: (
                        three.agent is not None and set(three.agent.mesh.names()) == {"one", "copy"}
                    ),
                    "it is taken",
                )

    run(work)


def test_a_refused_broker_is_unknown_to_the_cluster(tmp_path: Path) -> None:
    """Also after it falls silent, and also to brokers that start later."""

    async def work() -> None:
        async with running(tmp_path / "one", "one"):
            pass
        shutil.copytree(tmp_path / "one", tmp_path / "copy")
        async with (
            running(tmp_path / "one", "one") as one,
            running(tmp_path / "three", "three", one) as three,
        ):
            assert one.agent is not None
            assert three.agent is not None
            agents = (one.agent, three.agent)
            await until(lambda: three.agent and three.agent.mesh.names() == ("one",), "they meet")
            with pytest.raises(ConfigError, match="is a copy of"):
                async with running(tmp_path / "copy", "copy", three, join_seconds=JOIN_SECONDS):
                    pass
            now = asyncio.get_running_loop().time()
            for agent in agents:
                for second in range(60):
                    agent.gossip.tick(now + second)
                agent._handle_events()
                assert "copy" not in agent.mesh.names()
                assert agent.gossip.state("copy") is None
            async with running(tmp_path / "four", "four", three) as four:
                assert four.agent is not None
                assert set(four.agent.mesh.names()) == {"one", "three"}

    run(work)


def test_two_folders_that_are_copies_of_each_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with running(tmp_path / "one", "one"):
            pass
        shutil.copytree(tmp_path / "one", tmp_path / "copy")
        async with running(tmp_path / "one", "one") as one:
            with pytest.raises(ConfigError, match="is a copy of ours, or ours of it"):
                async with running(tmp_path / "copy", "copy", one, join_seconds=JOIN_SECONDS):
                    pass
            why = "is a copy of ours, or ours of it; one of them needs an empty folder"
            assert why in caplog.text
            assert one.agent is not None
            assert not one.agent.mesh.names()

    run(work)


@pytest.mark.parametrize("change", ["the secret", "the name"])
def test_one_of_the_cluster_is_refused_like_a_stranger(tmp_path: Path, change: str) -> None:
    """That it knows the others does not make it theirs."""

    async def work() -> None:
        async with running(tmp_path / "one", "one") as one:
            async with running(tmp_path / "two", "two", one) as two:
                await until(lambda: two.agent and two.agent.mesh.names() == ("one",), "they meet")
            is_secret = change == "the secret"
            name, secret = ("two", b"x" * 32) if is_secret else ("one", b"")
            with pytest.raises(ConfigError, match="does not let this node in"):
                async with running(
                    tmp_path / "two", name, secret=secret, join_seconds=JOIN_SECONDS
                ):
                    pass

    run(work)


def test_a_broker_whose_peers_are_down_starts_alone(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            running(tmp_path / "one", "one") as one,
            running(tmp_path / "two", "two", one) as two,
        ):
            await until(lambda: two.agent and two.agent.mesh.names() == ("one",), "they meet")
        async with running(tmp_path / "two", "two") as two:
            assert two.agent is not None
            assert two.agent.mesh.names() == ("one",)

    run(work)


def test_queries_at_the_same_time_share_one_answer(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            running(tmp_path / "one", "one") as one,
            running(tmp_path / "two", "two", one) as two,
        ):
            assert one.agent is not None
            assert two.agent is not None
            transport = one.agent.transport
            await until(lambda: transport.connected == {"two"}, "they meet")
            queries = one.agent.queries
            first, second = await asyncio.gather(queries.cluster(), queries.cluster())
            assert first is second
            assert [entry.name for entry in first.nodes] == ["one", "two"]
            assert [entry.report is not None for entry in first.nodes] == [True, True]
            assert await queries.cluster() is not first

    run(work)


def test_answers_that_nobody_waits_for(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path / "one", "one") as one:
            assert one.agent is not None
            one.agent.queries.answered("two", encode(QueryReply(1, b"late")))
            with pytest.raises(PeerError, match="cannot be read"):
                one.agent.queries.answered("two", b"garbage")

    run(work)


def test_a_refused_broker_does_not_start_alone(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path / "one", "one") as one:
            with pytest.raises(ConfigError, match="does not let this node in: there are two nodes"):
                async with running(tmp_path / "other", "one", one):
                    pass

    run(work)


def test_an_invalid_address_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The broker that passes it on is not to blame, and its other records count."""
    addresses = {"three": b"no:address", "four": b"\xff", "five": b"127.0.0.1:9"}
    told = gossip.GossipAck2(
        [
            Delta(name, 1, 0, 3, (Record("role", 2, b"broker"), Record("address", 3, text)))
            for name, text in addresses.items()
        ]
    )

    async def work() -> None:
        async with running(tmp_path / "one", "one") as one:
            assert one.agent is not None
            mesh = one.agent.mesh
            async with running(tmp_path / "two", "two", one) as two:
                assert two.agent is not None
                transport = two.agent.transport
                await until(lambda: "one" in transport.connected, "they meet")
                transport.send("one", GOSSIP, gossip.encode(told))
                await until(lambda: mesh.peers.addresses.get("five"), "it is heard")
                assert mesh.peers.addresses["five"] == "127.0.0.1:9"
                assert not mesh.peers.addresses["three"]
                assert "one" in transport.connected
            mesh.peer_is_at("three", "no:address")  # as an earlier version remembered it
        async with running(tmp_path / "one", "one") as one:
            assert one.agent is not None
            assert set(one.agent.mesh.names()) == {"three", "four", "five"}  # two has left

    run(work)
    said = [record.message for record in caplog.records if "address of three" in record.message]
    assert len(said) == 2  # once in each life
