"""Nodes of any role find each other and know each other's role."""

import asyncio

from dovetail.cluster import gossip
from dovetail.cluster.agent import GOSSIP
from dovetail.cluster.membership import Delta, Record
from support.clusters.agent_nodes import bare, run, until


def test_all_know_what_each_is_for() -> None:
    """Also those who have only heard of each other."""

    async def work() -> None:
        async with bare("one", "broker") as one:
            seed = one.transport.address
            async with bare("two", "matcher", seed) as two, bare("three", "matcher", seed) as three:
                nodes = {"one": one, "two": two, "three": three}
                await until(
                    lambda: all(
                        node.transport.connected == nodes.keys() - {name}
                        for name, node in nodes.items()
                    ),
                    "all meet",
                )
                for name, node in nodes.items():
                    others = nodes.keys() - {name}
                    roles = {other: node.role_of(other) for other in others}
                    assert roles == {
                        other: "broker" if other == "one" else "matcher" for other in others
                    }
                    assert ("up", "one", "broker", seed) in node.events or name == "one"
            await until(lambda: ("left", "two", "matcher") in one.events, "it has left")
            assert one.state_of("two") == "left"

    run(work)


def test_who_is_heard_of_without_a_role_is_left_alone() -> None:
    def told(version: int, *records: Record) -> bytes:
        return gossip.encode(gossip.GossipAck2([Delta("three", 1, version - 1, version, records)]))

    async def work() -> None:
        async with (
            bare("one", "broker") as one,
            bare("two", "broker", one.transport.address) as two,
        ):
            await until(lambda: "one" in two.transport.connected, "they meet")
            two.transport.send("one", GOSSIP, told(1))
            await until(lambda: one.gossip.state("three"), "it is heard of")
            assert one.role_of("three") is None
            assert not [event for event in one.events if "three" in event]
            two.transport.send("one", GOSSIP, told(2, Record("role", 2, b"matcher")))
            await until(lambda: ("live", "three", "matcher", True) in one.events, "it has a role")
            two.transport.send("one", GOSSIP, told(3, Record("address", 3, b"127.0.0.1:9")))
            await until(
                lambda: any(event[:2] == ("at", "three") for event in one.events),
                "it is somewhere",
            )

    run(work)


def test_another_life_may_have_another_role() -> None:
    async def work() -> None:
        async with bare("one", "broker") as one:
            seed = one.transport.address
            async with bare("two", "matcher", seed):
                await until(lambda: one.role_of("two") == "matcher", "they meet")
            async with bare("two", "broker", seed, incarnation=2):
                await until(lambda: one.role_of("two") == "broker", "they meet again")

    run(work)


def test_who_left_and_keeps_nothing_is_forgotten() -> None:
    async def work() -> None:
        async with bare("one", "broker") as one:
            async with bare("two", "matcher", one.transport.address):
                await until(lambda: "two" in one.transport.connected, "they meet")
            await until(lambda: ("left", "two", "matcher") in one.events, "it leaves")
            one._left_at["two"] = -asyncio.get_running_loop().time()  # long ago
            one._forget_those_who_left()
            assert one.events[-1] == ("forgotten", "two")
            assert one.gossip.state("two") is None

    run(work)
