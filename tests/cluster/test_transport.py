"""Nodes that connect over real sockets, and misbehaving peers."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest

from dovetail.cluster import frames, transport
from dovetail.cluster.addresses import Address
from dovetail.cluster.dialer import DialTarget
from dovetail.cluster.frames import encode, header
from dovetail.cluster.handshake import MAGIC, VERSION, RefusalCode, decode_refusal
from dovetail.cluster.limits import HANDSHAKE_BYTES_MAX
from dovetail.cluster.peer_link import PeerLink
from dovetail.cluster.transport import Transport
from dovetail.errors import ConfigError, PeerError
from dovetail.limits import CLUSTER_NODES_MAX
from support.brokers.handshakes import KEY as ANOTHER_KEY
from support.brokers.handshakes import dialer
from support.clusters.transport_nodes import (
    ANSWER,
    ASK,
    KEY,
    ScriptedPeer,
    TransportNode,
    dialed,
    links,
    named,
    nodes,
    run,
    served,
    until,
)
from support.processes.broker_process import WAIT_SECONDS

Log = pytest.LogCaptureFixture


async def connect(one: TransportNode, other: TransportNode) -> None:
    name = other.transport.links.name
    one.transport.connect_to(name, other.address)
    await one.told("connected", name)


def warnings(caplog: Log) -> list[str]:
    """Ours; asyncio has its own when it is debugged."""
    ours = [record for record in caplog.records if record.name == "dovetail.cluster"]
    return [record.message for record in ours if record.levelno >= logging.WARNING]


# As it should be --------------------------------------------------------------------------------


def test_two_nodes_ask_and_answer_each_other() -> None:
    async def work() -> None:
        async with nodes(links("a"), links("b")) as (a, b):
            await connect(a, b)
            await connect(b, a)
            assert a.transport.send("b", ASK, b"you")
            assert b.transport.send("a", ASK, b"me")
            await a.got("b", ANSWER, b"to you")
            await b.got("a", ANSWER, b"to me")
            assert a.events == [("connected", "b"), ("accepted", "b")]
            assert b.events == [("accepted", "a"), ("connected", "a")]
            assert a.transport.connected == {"b"}
            await until(lambda: a.transport.unsent_bytes("b") == 0)

    run(work())


def test_a_seed_has_the_name_that_it_tells() -> None:
    async def work() -> None:
        async with nodes(links("a"), links("b")) as (a, b):
            a.transport.connect_to(None, b.address)
            await a.told("connected", "b")
            a.transport.connect_to("b", b.address)  # as membership will say: nothing changes
            assert a.transport.send("b", ASK, b"x")
            await a.got("b", ANSWER, b"to x")
            assert b.events == [("accepted", "a")]

    run(work())


def test_frames_arrive_whole_and_in_order() -> None:
    async def work() -> None:
        async with nodes(links("a"), links("b")) as (a, b):
            b.on_frame = lambda *_: None
            await connect(a, b)
            bodies = [bytes([number % 256]) * (number * 37 % 200_000) for number in range(300)]
            for number, body in enumerate(bodies):
                assert a.transport.send("b", 16 + number % 100, body)
            await b.until(lambda: len(b.frames) == len(bodies))
            assert b.frames == [("a", 16 + at % 100, body) for at, body in enumerate(bodies)]

    run(work())


def test_a_node_that_is_not_there_yet_is_waited_for(caplog: Log) -> None:
    async def work() -> None:
        async with nodes(links("a"), links("b")) as (a, b):
            address = b.address
            await b.transport.stop()
            a.transport.connect_to("b", address)
            await until(lambda: any("connection refused" in line for line in caplog.messages))
            assert not a.transport.send("b", ASK, b"")
            assert a.transport.heard_at("b") is None
            async with nodes(links("b", port=address.port)):
                await a.told("connected", "b")

    run(work())
    assert len(warnings(caplog)) == 1  # however often it tried


def test_a_connection_that_breaks_is_dialed_anew() -> None:
    async def work() -> None:
        async with nodes(links("a"), links("b")) as (a, b):
            await connect(a, b)
            for times in (1, 2, 3):
                side = (a, b)[times % 2]
                (link,) = side.transport._links
                link.abort("cut by the test")
                await a.told("lost", "b", times=times)
                await a.told("connected", "b", times=times + 1)
            a.transport.send("b", ASK, b"x")
            await a.got("b", ANSWER, b"to x")
            await until(lambda: len(b.transport._links) == 1)

    run(work())


def test_a_node_that_dials_us_is_dialed_at_once() -> None:
    async def work() -> None:
        slow = links("a", dial_seconds_min=3_600, dial_seconds_max=3_600)
        async with nodes(slow, links("b")) as (a, b):
            address = b.address
            await b.transport.stop()
            a.transport.connect_to("b", address)
            (dial,) = a.transport._dials
            await until(lambda: dial.failures > 0)
            async with nodes(links("b", port=address.port)) as (again,):
                again.transport.connect_to("a", a.address)
                await a.told("connected", "b")

    run(work())


def test_a_peer_is_heard_though_it_says_nothing() -> None:
    async def work() -> None:
        async with nodes(links("a"), links("b")) as (a, b):
            await connect(a, b)
            heard_at = a.transport.heard_at("b")
            assert heard_at is not None
            await until(lambda: (a.transport.heard_at("b") or 0) > heard_at)
            await until(lambda: (b.transport.heard_at("a") or 0) > heard_at)
            assert a.transport.heard_at("c") is None

    run(work())


def test_what_was_sent_before_the_end_arrives() -> None:
    async def work() -> None:
        async with nodes(links("a"), links("b")) as (a, b):
            await connect(a, b)
            a.transport.send("b", ASK, bytes(1_000_000))
            await a.transport.stop()
            await b.got("a", ASK, bytes(1_000_000))
            assert a.events == [("connected", "b")]  # no callback once it stops

    run(work())


def test_nothing_is_left_after_the_end() -> None:
    async def work() -> None:
        async with nodes(links("a"), links("b")) as (a, b):
            await connect(a, b)
            a.transport.connect_to("c", Address("127.0.0.1", 1))
            async with dialed(b.address) as stranger:
                await until(lambda: len(b.transport._links) == 2)
                await a.transport.stop()
                await b.transport.stop()
                await stranger.closed()
            for node in (a, b):
                assert not node.transport._links
                assert not node.transport._tasks

    run(work())


# Whom a node dials ------------------------------------------------------------------------------


def test_who_is_forgotten_is_not_dialed_any_more() -> None:
    async def work() -> None:
        async with nodes(links("a"), links("b")) as (a, b):
            await connect(a, b)
            a.transport.forget("b")
            a.transport.forget("b")
            a.transport.forget("nobody")
            assert not a.transport.send("b", ASK, b"")
            await until(lambda: not (a.transport._links or b.transport._links))
            assert not a.transport._dials
            assert ("lost", "b") not in a.events
            await connect(a, b)

    run(work())


def test_a_seed_is_forgotten_by_its_address() -> None:
    async def work() -> None:
        async with nodes(links("a")) as (a,):
            nowhere = Address("127.0.0.1", 1)
            a.transport.connect_to(None, nowhere)
            a.transport.connect_to(None, nowhere)
            assert len(a.transport._dials) == 1
            a.transport.forget(nowhere)
            assert not a.transport._dials

    run(work())


def test_a_seed_that_is_connected_already_has_served_its_purpose() -> None:
    async def work() -> None:
        async with nodes(links("a"), links("b")) as (a, b):
            await connect(a, b)
            a.transport.connect_to(None, Address("localhost", b.address.port))
            await until(lambda: len(a.transport._dials) == 1)
            await until(lambda: len(b.transport._links) == 1)
            assert a.events == [("connected", "b")]
            a.transport.send("b", ASK, b"x")
            await a.got("b", ANSWER, b"to x")

    run(work())


def test_a_node_that_has_moved_is_found_at_its_new_address() -> None:
    async def work() -> None:
        async with nodes(links("a"), links("b")) as (a, b):
            await connect(a, b)
            await b.transport.stop()
            await a.told("lost", "b")
            async with nodes(links("b")) as (moved,):
                a.transport.connect_to("b", moved.address)
                await a.told("connected", "b", times=2)
                assert len(a.transport._dials) == 1

    run(work())


def test_a_name_that_somebody_else_answers_to(caplog: Log) -> None:
    async def work() -> None:
        async with nodes(links("a"), links("b")) as (a, b):
            a.transport.connect_to("c", b.address)
            await until(lambda: len(warnings(caplog)) == 2)

    run(work())
    assert "c was expected where b is" in warnings(caplog)[0]
    assert "c was expected where b is" in warnings(caplog)[1]


def test_a_seed_gets_a_name_while_it_is_dialing() -> None:
    async def work() -> None:
        async with nodes(links("a"), links("b")) as (a, b):
            a.transport.connect_to(None, b.address)
            a.transport.connect_to("b", b.address)
            await a.told("connected", "b")
            assert len(a.transport._dials) == 1
            a.transport.connect_to("c", b.address)  # it is not c
            assert len(a.transport._dials) == 2

    run(work())


def test_a_node_that_dials_itself_says_nothing_about_it(caplog: Log) -> None:
    async def work() -> None:
        async with nodes(links("a")) as (a,):
            a.transport.connect_to(None, a.address)
            await until(lambda: caplog.text.count("a has dialed itself") >= 4)
            assert a.events == []

    with caplog.at_level(logging.DEBUG):
        run(work())
    assert warnings(caplog) == []


def test_not_more_nodes_than_a_cluster_has(caplog: Log) -> None:
    async def work() -> None:
        async with nodes(links("a", dial_seconds_min=60, dial_seconds_max=60)) as (a,):
            for number in range(CLUSTER_NODES_MAX + 1):
                a.transport.connect_to(None, Address("127.0.0.1", 1 + number))
            assert len(a.transport._dials) == CLUSTER_NODES_MAX

    run(work())
    assert "too many nodes" in caplog.text


def test_a_fault_of_ours_does_not_end_a_dial(caplog: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [RuntimeError("a bug")]

    def fail() -> None:
        raise faults.pop()

    def make_link(owner: Transport, dial: DialTarget | None = None) -> PeerLink:
        link = PeerLink(owner, dial)
        if faults:
            monkeypatch.setattr(link.settled, "wait", fail)
        return link

    async def work() -> None:
        async with nodes(links("a"), links("b")) as (a, b):
            monkeypatch.setattr(transport, "PeerLink", make_link)
            await connect(a, b)

    run(work())
    assert "cannot dial b" in caplog.text


def test_many_nodes_find_each_other_however_often_they_are_cut() -> None:
    async def work() -> None:
        random = Random(1)
        names = "abcd"
        async with nodes(*(links(name) for name in names)) as all_nodes:
            for node in all_nodes:  # all have the same seeds, themselves among them
                for other in all_nodes:
                    node.transport.connect_to(None, other.address)

            def is_whole() -> bool:
                return all(len(node.transport.connected) == len(names) - 1 for node in all_nodes)

            for _ in range(50):
                await until(is_whole)
                node = random.choice(all_nodes)
                random.choice([*node.transport._links]).abort("cut by the test")
                await asyncio.sleep(0)
            await until(is_whole)
            # One each way with each of the others; a node's own dial of itself comes and goes.
            for node in all_nodes:
                await until(lambda node=node: len(proven(node)) == 2 * (len(names) - 1))  # type: ignore[misc]
                for name in set(names) - {node.transport.links.name}:
                    turns = [
                        what for what, who in node.events if who == name and what != "accepted"
                    ]
                    assert turns == ["connected", "lost"] * (len(turns) // 2) + ["connected"]

    run(work())


def proven(node: TransportNode) -> list[PeerLink]:
    return [link for link in node.transport._links if link.is_open]


# Who is refused ---------------------------------------------------------------------------------


def test_another_secret(caplog: Log) -> None:
    async def work() -> None:
        async with nodes(links("a", secret=b"another secret..."), links("b")) as (a, b):
            a.transport.connect_to("b", b.address)
            await until(lambda: len(warnings(caplog)) == 2)
            assert a.events == b.events == []

    run(work())
    here, there = sorted(warnings(caplog)[:2])  # it may have tried again
    why = "the proof of a is wrong: b has another secret"
    assert here.startswith("cannot connect to b at 127.0.0.1:")
    assert here.endswith(f": refused by it: {why}")
    assert there == f"rejected the connection from 127.0.0.1: refused: {why}"


def test_another_cluster(caplog: Log) -> None:
    async def work() -> None:
        async with nodes(links("a", cluster="one"), links("b", cluster="two")) as (a, b):
            a.transport.connect_to(None, b.address)
            await until(lambda: len(warnings(caplog)) == 2)

    run(work())
    assert caplog.text.count("b is in the cluster two, a in one") == 2


def test_another_version() -> None:
    async def work() -> None:
        async with nodes(links("a")) as (a,), dialed(a.address) as peer:
            version = (VERSION + 1).to_bytes(2)
            peer.send(frames.HELLO, MAGIC + version + b"whatever will be said then")
            frame = await peer.next_frame()
            assert frame is not None
            assert frame[0] == frames.REFUSAL
            assert decode_refusal(frame[1]).code == RefusalCode.OTHER_VERSION
            await peer.closed()

    run(work())


def test_a_name_that_is_in_use_is_free_when_its_node_is_gone(caplog: Log) -> None:
    async def work() -> None:
        async with nodes(links("a"), links("b"), links("b")) as (a, b, impostor):
            await connect(b, a)
            impostor.transport.connect_to("a", a.address)
            await until(lambda: len(warnings(caplog)) == 2)
            assert caplog.text.count(f"the name b is in use by the node at {b.address}") == 2
            await b.transport.stop()
            await impostor.told("connected", "a")

    run(work())


def test_a_process_that_takes_anothers_place_has_its_name() -> None:
    """It is at the same address: the other is gone, though nobody has noticed yet."""

    async def work() -> None:
        async with nodes(links("a")) as (a,):
            here = Address("10.0.0.1", 7883)
            async with nodes(links("b", advertise=here)) as (b,):
                await connect(b, a)
                assert b.transport._acceptor is not None
                a.transport.connect_to("b", b.transport._acceptor.address)
                await a.told("connected", "b")
                async with nodes(links("b", advertise=here)) as (again,):
                    again.transport.connect_to("a", a.address)
                    await again.told("connected", "a")
                    await a.told("lost", "b")
                    assert ("accepted", "b") in a.events

    run(work())


def test_a_node_that_is_not_taken(caplog: Log) -> None:
    async def work() -> None:
        async with nodes(links("a"), TransportNode(links("b"), refuses="b leaves the cluster")) as (
            a,
            b,
        ):
            a.transport.connect_to("b", b.address)
            await until(lambda: len(warnings(caplog)) == 2)
            assert a.events == b.events == []

    run(work())
    assert caplog.text.count("b leaves the cluster") == 2


def test_without_a_secret_nodes_of_one_machine_are_linked() -> None:
    async def work() -> None:
        async with nodes(links("a", secret=b""), links("b", secret=b"")) as (a, b):
            await connect(a, b)

    run(work())


def test_without_a_secret_no_other_machine_is(caplog: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "is_loopback", lambda _host: False)

    async def work() -> None:
        async with nodes(links("a", secret=b""), links("b", secret=b"")) as (a, b):
            a.transport.connect_to("b", b.address)
            await until(lambda: len(warnings(caplog)) == 2)

    run(work())
    assert caplog.text.count("b has no secret, and so links with nodes on its machine only") == 2


# Peers that do not behave -----------------------------------------------------------------------


def test_a_peer_that_does_not_read_is_closed(caplog: Log) -> None:
    async def work() -> None:
        free = asyncio.Event()
        options = links(
            "a", frame_bytes_max=1 << 20, backlog_bytes_max=1 << 20, stall_seconds_max=0.1
        )

        async def read_nothing(peer: ScriptedPeer) -> None:
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            while not peer.writer.is_closing():
                peer.send(frames.PONG, b"")  # alive, and deaf
                await asyncio.sleep(0.01)
            await free.wait()

        async with served(read_nothing, named("b")) as address, nodes(options) as (a,):
            a.transport.connect_to("b", address)
            await a.told("connected", "b")
            body = bytes(100_000)
            while a.transport.connected:
                if not a.transport.send("b", ASK, body):
                    await asyncio.sleep(0.001)
                assert a.transport.unsent_bytes("b") <= 1 << 20
            await a.told("lost", "b")
            a.transport.forget("b")

    with caplog.at_level(logging.INFO):
        run(work())
    assert "it takes no bytes" in caplog.text


def test_a_peer_that_does_not_take_its_answers_is_not_asked_for_more() -> None:
    async def work() -> None:
        async with nodes(links("a", stall_seconds_max=0.3)) as (a,):

            def answer_at_length(link: PeerLink, _kind: int, _body: bytes) -> None:
                link.answer(ANSWER, bytes(100_000))

            a.on_frame = answer_at_length
            async with dialed(a.address, named("b")) as peer:
                peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
                async with asyncio.timeout(WAIT_SECONDS):
                    with suppress(ConnectionError):
                        while a.transport._links:
                            peer.send(ASK, bytes(100))
                            await asyncio.wait_for(peer.writer.drain(), 1)
                await until(lambda: not a.transport._links)
                assert len(a.frames) < 100_000

    run(work())


def test_a_peer_of_which_nothing_is_heard_is_dialed_anew(caplog: Log) -> None:
    async def work() -> None:
        async def listen_only(peer: ScriptedPeer) -> None:
            await peer.closed()

        options = links("a", silence_seconds_max=0.1)
        async with served(listen_only, named("b")) as address, nodes(options) as (a,):
            a.transport.connect_to("b", address)
            await a.told("lost", "b")
            await a.told("connected", "b", times=2)

    with caplog.at_level(logging.INFO):
        run(work())
    assert "nothing was heard of it" in caplog.text


def test_a_node_that_was_asleep_does_not_blame_its_peers() -> None:
    async def work() -> None:
        now = 0.0
        async with nodes(links("a"), links("b")) as (a, b):
            await connect(a, b)
            (link,) = a.transport._links
            now = a.transport.clock() + 3_600
            a.transport.clock = link._owner.clock = lambda: now  # type: ignore[method-assign]
            a.transport._tick()
            assert link.is_open
            now += 0.02
            a.transport._tick()
            assert link.is_open

    run(work())


@pytest.mark.parametrize("length", [1 << 24, (1 << 32) - 1])
def test_an_oversize_frame_closes_the_connection(length: int) -> None:
    async def work() -> None:
        async with nodes(links("a")) as (a,), dialed(a.address, named("b")) as peer:
            await a.told("accepted", "b")
            peer.writer.write(header(ASK, length))
            await peer.closed()
            assert a.frames == []

    run(work())


def test_frames_of_a_lost_connection_do_not_come_behind_those_of_the_next() -> None:
    async def work() -> None:
        async with (
            nodes(links("a")) as (a,),
            dialed(a.address, named("b", 1)) as lost,
            dialed(a.address, named("b", 2)) as unused,
            dialed(a.address, named("b", 3)) as later,
        ):
            await a.told("accepted", "b", times=3)
            lost.send(ASK, b"early")
            await a.got("b", ASK, b"early")
            later.send(ASK, b"later")
            await a.got("b", ASK, b"later")
            # As bytes that were on their way when the network was cut.
            for peer in (lost, unused):
                peer.send(ASK, b"late")
                await peer.closed()
            later.send(ASK, b"latest")
            await a.got("b", ASK, b"latest")
            assert ("b", ASK, b"late") not in a.frames

    run(work())


def test_before_the_proof_frames_are_small() -> None:
    async def work() -> None:
        async with nodes(links("a")) as (a,), dialed(a.address) as peer:
            peer.writer.write(header(frames.HELLO, HANDSHAKE_BYTES_MAX))
            await peer.closed()

    run(work())


def test_what_no_peer_would_take_is_not_sent() -> None:
    async def work() -> None:
        async with nodes(links("a", frame_bytes_max=1_000), links("b")) as (a, b):
            await connect(a, b)
            with pytest.raises(ValueError, match="no peer would take it"):
                a.transport.send("b", ASK, bytes(1_000))
            with pytest.raises(ValueError, match="not for users"):
                a.transport.send("b", frames.HELLO, b"")
            assert a.transport.send("b", ASK, bytes(995))

    run(work())


@pytest.mark.parametrize(
    "frame",
    [
        encode(frames.PONG, b""),
        encode(frames.HELLO, b""),
        encode(frames.PROOF, bytes(32)),
        encode(frames.REFUSAL, b""),
        encode(0, b""),
        encode(15, b"?"),
    ],
)
def test_a_frame_out_of_turn_ends_it(frame: bytes) -> None:
    async def work() -> None:
        async with nodes(links("a")) as (a,), dialed(a.address, named("b")) as peer:
            peer.writer.write(frame)
            await peer.closed()
            await until(lambda: not a.transport._links)

    run(work())


@pytest.mark.parametrize("error", [PeerError("this cannot be read"), RuntimeError("a bug")])
def test_a_handler_that_fails_costs_its_connection_only(error: Exception, caplog: Log) -> None:
    async def work() -> None:
        def fail(_link: PeerLink, _kind: int, body: bytes) -> None:
            if body == b"bad":
                raise error

        async with nodes(links("a"), links("b"), links("c")) as (a, b, c):
            b.on_frame = fail
            await connect(a, b)
            await connect(c, b)
            a.transport.send("b", ASK, b"bad")
            await a.told("lost", "b")
            await a.told("connected", "b", times=2)
            c.transport.send("b", ASK, b"good")
            await b.got("c", ASK, b"good")
            assert ("lost", "b") not in c.events

    run(work())
    assert ("a bug" in caplog.text) == isinstance(error, RuntimeError)


def test_a_handshake_that_does_not_end_is_closed(caplog: Log) -> None:
    async def work() -> None:
        async with nodes(links("a", handshake_seconds_max=0.1)) as (a,):
            async with dialed(a.address) as silent, dialed(a.address) as half:
                half.writer.write(dialer(named("b")).begin()[:-1])
                await silent.closed()
                await half.closed()
            await until(lambda: not a.transport._links)

    run(work())
    assert "its handshake took more than 0.1 s" in caplog.text


def test_the_oldest_silent_connection_gives_way_to_a_newcomer(caplog: Log) -> None:
    async def work() -> None:
        async with nodes(links("a", member_handshakes_max=3), links("b")) as (a, b):
            await connect(b, a)  # who has proven itself does not count
            async with dialed(a.address) as first, dialed(a.address) as second:
                await until(lambda: len(a.transport._links) == 3)
                first.writer.write(dialer(named("d")).begin())
                await first.next_frame()  # it has said who it is
                async with dialed(a.address), dialed(a.address):
                    await second.closed()
                    await until(lambda: len(a.transport._links) == 4)
            async with nodes(links("c")) as (c,):
                await connect(c, a)

    run(work())
    assert "rejected the connection from 127.0.0.1: newer connections needed its slot" in warnings(
        caplog
    )


@asynccontextmanager
async def flooded(address: Address, count: int) -> AsyncIterator[Callable[[], int]]:
    """So many idle connections at any time: for each that is closed another one comes.

    Gives how many were closed.
    """
    closed = 0

    async def keep() -> None:
        nonlocal closed
        while True:
            with suppress(ConnectionError):
                async with dialed(address) as silent:
                    await silent.closed()
            closed += 1

    tasks = [asyncio.create_task(keep()) for _ in range(count)]
    try:
        yield lambda: closed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_a_node_gets_in_though_its_address_floods_us_with_idle_connections() -> None:
    async def work() -> None:
        async with nodes(links("a", handshake_seconds_max=3_600)) as (a,):
            slots = a.transport.links.stranger_handshakes_max
            async with flooded(a.address, 4 * slots) as closed:
                await until(lambda: closed() > slots)
                async with nodes(links("b")) as (b,):
                    await connect(b, a)  # as a stranger
                    assert a.transport._members == {"127.0.0.1": None}
                async with nodes(links("b")) as (b,):
                    await connect(b, a)  # and as a member

    run(work())


def test_strangers_do_not_take_the_slots_of_members() -> None:
    async def work() -> None:
        async with nodes(links("a", member_handshakes_max=1, stranger_handshakes_max=2)) as (a,):
            a.transport.connect_to(None, Address("127.0.0.1", 1))  # a seed is a member
            async with dialed(a.address) as member:
                await until(lambda: len(a.transport._links) == 1)
                for _ in range(5):
                    _, writer = await asyncio.open_connection(
                        *a.address, local_addr=("127.0.0.2", 0)
                    )
                    writer.close()
                await member.shake_hands(dialer(named("b"), KEY))
                await a.told("accepted", "b")

    run(work())


def test_a_peer_that_accepts_and_says_nothing_is_given_up(caplog: Log) -> None:
    async def work() -> None:
        options = links("a", handshake_seconds_max=0.05)
        async with served(ScriptedPeer.closed) as address, nodes(options) as (a,):
            a.transport.connect_to("b", address)
            await until(lambda: "no answer in 0.05 s" in caplog.text)

    run(work())


def test_a_rogue_acceptor_is_not_believed(caplog: Log) -> None:
    """It plays the dialer's own words and proof back."""

    async def work() -> None:
        async def play_back(peer: ScriptedPeer) -> None:
            while (frame := await peer.next_frame()) is not None:
                peer.send(*frame)

        async with served(play_back) as address, nodes(links("a")) as (a,):
            a.transport.connect_to("b", address)
            a.transport.connect_to(None, Address("localhost", address.port))
            await until(lambda: caplog.text.count("a has dialed itself") >= 2)
            assert a.events == []

    with caplog.at_level(logging.DEBUG):
        run(work())


def test_strangers_with_any_bytes_leave_a_node_as_it_was(caplog: Log) -> None:
    async def work() -> None:
        async with nodes(links("a"), links("b")) as (a, b):
            await connect(b, a)
            hello = dialer(named("c")).begin()
            for number in range(200):
                async with dialed(a.address) as stranger:
                    # Random bytes: alone, behind a whole HELLO, inside one, and as its proof.
                    noise = os.urandom(number % 50)
                    at = number % len(hello)
                    stranger.writer.write(
                        [
                            noise,
                            hello + noise,
                            hello[:at] + noise + hello[at + 1 :],
                            hello + encode(number % 8, noise),
                        ][number % 4]
                    )
                    stranger.writer.write_eof()
                    await stranger.closed()
            await until(lambda: len(a.transport._links) == 1)
            b.transport.send("a", ASK, b"x")
            await b.got("a", ANSWER, b"to x")
            assert a.events == [("accepted", "b")]

    run(work())
    assert not [line for line in warnings(caplog) if "cannot read from" in line]


def test_a_proof_of_one_connection_is_none_on_another() -> None:
    async def work() -> None:
        own = named("b")
        async with nodes(links("a")) as (a,), dialed(a.address) as first:
            side = dialer(own, ANOTHER_KEY)
            first.writer.write(side.begin())
            frame = await first.next_frame()
            assert frame is not None
            proof = side.receive(*frame)
            async with dialed(a.address) as second:
                second.writer.write(side.begin() + proof)
                await second.closed()
            assert a.events == []

    run(work())


# Addresses --------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_named() -> None:
    async def work() -> None:
        async with nodes(links("a")) as (a,):
            with pytest.raises(ConfigError, match="the port is taken by another program"):
                await TransportNode(links("b", port=a.address.port)).transport.start()

    run(work())


def test_a_host_that_cannot_be(caplog: Log) -> None:
    async def work() -> None:
        async with nodes(links("a")) as (a,):
            a.transport.connect_to("b", Address("b" * 100 + ".invalid", 7883))
            await until(lambda: "cannot connect to b at bbb" in caplog.text)

    run(work())


def test_listening_on_every_address() -> None:
    async def work() -> None:
        here = Address("127.0.0.1", 7883)
        async with nodes(links("a", host="", advertise=here), links("b")) as (a, b):
            assert a.address == here
            assert a.transport._acceptor is not None
            b.transport.connect_to("a", Address("127.0.0.1", a.transport._acceptor.address.port))
            await b.told("connected", "a")

    run(work())
