"""No client blocks the others: the longest turn of a broker's loop, for all work of a client.

Only this test measures time. It is the processor time of the loop's own thread, so a busy machine
matters little. But processors slow down when their neighbours are busy and share their caches. So
each case that took too long has a second try, and the shorter one counts: work in one piece is as
long in both.

Numbers are below the default limits where the largest cases take long to make; `scripts/bench
stalls` has all of them. In one piece, each case would take several times the limit.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import uvloop

from support.brokers import long_work
from support.processes.turn_process import TurnBroker, TurnMeter

TURN_SECONDS_MAX = 0.020
PROPERTIES = "5,000 user properties on CONNECT"
SHORTER_SECONDS_MAX = {PROPERTIES: 0.005}
"""Work in one piece, which must be quick."""

ALLOWED = """
[[listeners]]
kind = "tcp"
port = 0
[http]
port = 0
"""
FORBIDDEN = f"""{ALLOWED}
[[access.rules]]
deny = ["site/#"]
[[access.rules]]
publish = ["#"]
subscribe = ["#"]
"""


def cases(broker: TurnBroker) -> dict[str, Callable[[], object]]:
    """Return the cases by name."""
    port = broker.port
    plain = long_work.plain_filters(100_000)
    some = plain[:10_000]
    deep = long_work.overlapping_filters(65_536)
    groups = long_work.group_filters(2_000)  # a publication goes to all of them in one piece

    def forbid() -> None:
        broker.file.write_text(FORBIDDEN)
        broker.reload()

    def subscribe_and_forbid() -> None:
        long_work.forbid_to(port, some, forbid)
        broker.file.write_text(ALLOWED)
        broker.reload()

    return {
        "close with 100,000 subscriptions": lambda: long_work.close_with(port, plain),
        "unsubscribe": lambda: long_work.unsubscribe_from(port, some),
        "start clean over persistent subscriptions": lambda: long_work.start_clean_over(port, some),
        "the same with shared ones": lambda: long_work.start_clean_over(port, groups),
        "publish to 65,536 overlapping filters of 16 levels": lambda: long_work.publish_to(
            port, deep, long_work.DEEP_TOPIC
        ),
        "publish to many groups": lambda: long_work.publish_to(
            port, groups, long_work.GROUPS_TOPIC
        ),
        **{
            f"100 publications at QoS {qos} in one read, to 250 groups": partial(
                long_work.publish_at_once, port, groups[:250], long_work.GROUPS_TOPIC, 100, qos
            )
            for qos in (0, 1)
        },
        "nine clients that close together": lambda: long_work.close_together(port, deep[:4_096], 9),
        PROPERTIES: lambda: long_work.connect_with_properties(port, 5_000),
        "subscribe to retained messages": lambda: long_work.subscribe_to_retained(port, 10_000),
        "forbid what a client has subscribed to": subscribe_and_forbid,
    }


def longest_turn(broker: TurnBroker, act: Callable[[], object]) -> float:
    broker.start_measuring()
    act()
    return broker.longest_turn()


def test_no_turn_of_the_loop_is_long(tmp_path: Path) -> None:
    with TurnBroker(tmp_path, ALLOWED) as broker:
        found = {}
        for name, act in cases(broker).items():
            seconds = longest_turn(broker, act)
            if seconds > SHORTER_SECONDS_MAX.get(name, TURN_SECONDS_MAX):
                seconds = min(seconds, longest_turn(broker, act))
            found[name] = seconds
    print({name: f"{seconds * 1e3:.1f} ms" for name, seconds in found.items()})
    too_long = {
        name: seconds
        for name, seconds in found.items()
        if seconds > SHORTER_SECONDS_MAX.get(name, TURN_SECONDS_MAX)
    }
    assert too_long == {}


def test_a_long_turn_is_seen() -> None:
    def take_long() -> None:
        end = time.thread_time() + 2 * TURN_SECONDS_MAX
        while time.thread_time() < end:
            pass

    async def measure() -> float:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[float] = loop.create_future()
        meter = TurnMeter(loop, told.set_result)
        meter.begin()
        loop.call_soon(take_long)
        loop.call_soon(meter.end)
        return await told

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(measure()) >= 2 * TURN_SECONDS_MAX
