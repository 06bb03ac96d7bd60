"""`$SYS`: averages computed by hand, names compared with those of a running Mosquitto."""

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.broker.sys_topics import AVERAGED_SECONDS, LOADS, TOPICS, SysTopics
from dovetail.stats import Counters, Gauges
from support.processes.mosquitto import Mosquitto

NOT_OURS = {
    "$SYS/broker/heap/current": "Python has no one heap; /metrics has the process's memory",
    "$SYS/broker/heap/maximum": "as heap/current",
    "$SYS/broker/shared_subscriptions/count": "subscriptions are counted without looking at groups",
}
NOT_THEIRS = "$SYS/broker/dovetail/"


def published(topics: SysTopics, now: float, **counts: int) -> dict[str, str]:
    counters, gauges = Counters(), Gauges()
    for name, value in counts.items():
        setattr(counters if hasattr(counters, name) else gauges, name, value)
    changed = topics.publish(counters, gauges, now)
    answer = {topic.decode(): payload.decode() for topic, payload in changed}
    assert len(answer) == len(changed)
    return answer


def test_the_first_time_everything_is_told() -> None:
    told = published(
        SysTopics("1.2.3", started_at=100.0),
        now=100.0,
        clients_connected=3,
        sessions=5,
        retained_messages=7,
        retained_bytes=70,
        queued_messages=11,
        queued_bytes=1_100,
    )
    assert len(told) == len(TOPICS) + len(LOADS) * len(AVERAGED_SECONDS)
    expected = {
        "version": "dovetail version 1.2.3",
        "uptime": "0 seconds",
        "clients/total": "5",
        "clients/connected": "3",
        "clients/active": "3",
        "clients/disconnected": "2",
        "clients/inactive": "2",
        "clients/maximum": "3",
        "store/messages/count": "18",
        "messages/stored": "18",
        "store/messages/bytes": "1170",
        "retained messages/count": "7",
        "dovetail/queued_bytes": "1100",
        "load/bytes/sent/15min": "0.00",
    }
    assert {name: told[f"$SYS/broker/{name}"] for name in expected} == expected


def test_then_only_what_has_changed() -> None:
    topics = SysTopics("1", started_at=0.0)
    published(topics, now=0.0, subscriptions=2)
    assert published(topics, now=0.5, subscriptions=2) == {}
    assert published(topics, now=10.9, subscriptions=4) == {
        "$SYS/broker/uptime": "10 seconds",
        "$SYS/broker/subscriptions/count": "4",
    }
    assert published(topics, now=10.95, subscriptions=2) == {"$SYS/broker/subscriptions/count": "2"}


def test_the_most_clients_are_remembered() -> None:
    topics = SysTopics("1", started_at=0.0)
    assert published(topics, 0.0, clients_connected=2)["$SYS/broker/clients/maximum"] == "2"
    assert published(topics, 1.0, clients_connected=9)["$SYS/broker/clients/maximum"] == "9"
    assert "$SYS/broker/clients/maximum" not in published(topics, 2.0, clients_connected=1)


def test_averages_worked_out_by_hand() -> None:
    topics = SysTopics("1", started_at=1_000.0)
    # 100 bytes in 60 s are 100 a minute. From 0, the one-minute average goes to
    # 100 (1 - e^-1) = 63.21, the others to 100 (1 - e^-1/5) = 18.13 and 100 (1 - e^-1/15) = 6.45.
    told = published(topics, 1_060.0, bytes_received=100)
    assert loads(told, "bytes/received") == ("63.21", "18.13", "6.45")
    # Nothing for 30 s: they fall by e^-1/2, e^-1/10 and e^-1/30.
    told = published(topics, 1_090.0, bytes_received=100)
    assert loads(told, "bytes/received") == ("38.34", "16.40", "6.24")
    # 10 in 15 s are 40 a minute: 40 + e^-1/4 (38.34 - 40) and so on.
    told = published(topics, 1_105.0, bytes_received=110)
    assert loads(told, "bytes/received") == ("38.71", "17.55", "6.80")


def test_connections_are_those_answered() -> None:
    told = published(SysTopics("1", 0.0), 60.0, connections_accepted=75, connections_refused=25)
    assert loads(told, "connections") == ("63.21", "18.13", "6.45")
    assert loads(told, "sockets") == ("63.21", "18.13", "6.45")


def loads(told: dict[str, str], name: str) -> tuple[str, ...]:
    return tuple(told[f"$SYS/broker/load/{name}/{span}"] for span in ("1min", "5min", "15min"))


@given(st.lists(st.tuples(st.floats(0.1, 1_000), st.integers(0, 10_000)), min_size=1, max_size=20))
def test_averages_stay_between_zero_and_the_highest_rate(steps: list[tuple[float, int]]) -> None:
    topics = SysTopics("1", started_at=0.0)
    now, total, highest = 0.0, 0, 0.0
    told: dict[str, str] = {}
    for seconds, count in steps:
        now += seconds
        total += count
        highest = max(highest, count * 60 / seconds)
        told |= published(topics, now, packets_sent=total)
    for value in loads(told, "messages/sent"):
        assert -0.01 <= float(value) <= highest * (1 + 1e-9) + 0.01


@pytest.mark.parametrize("seconds", [0.0, -5.0])
def test_a_clock_that_stands_still_does_no_harm(seconds: float) -> None:
    topics = SysTopics("1", started_at=10.0)
    before = published(topics, 20.0, bytes_sent=100)
    told = published(topics, 20.0 + seconds, bytes_sent=160)
    assert told["$SYS/broker/bytes/sent"] == "160"
    assert not any("/load/" in topic for topic in told)
    # What was counted meanwhile is in the next average.
    after = published(topics, 30.0, bytes_sent=160)
    assert float(loads(after, "bytes/sent")[0]) > float(loads(before, "bytes/sent")[0]) / 2


@pytest.mark.parametrize(
    "name", [item.name for kind in (Counters, Gauges) for item in fields(kind)]
)
def test_everything_that_is_counted_shows(name: str) -> None:
    before = published(SysTopics("1", 0.0), 0.0)
    after = published(SysTopics("1", 0.0), 0.0, **{name: 7})
    assert [topic for topic in after if after[topic] != before[topic]], name


def test_the_names_are_mosquittos(tmp_path: Path) -> None:
    with Mosquitto(tmp_path, "sys_interval 1") as mosquitto:
        theirs = mosquitto.sys_topics()
    ours = set(published(SysTopics("1", 0.0), 0.0))
    assert theirs - ours == set(NOT_OURS)
    assert {topic for topic in ours - theirs if not topic.startswith(NOT_THEIRS)} == set()
