"""A node with both roles, as a user starts it: `node --role both`, with real processes."""

import json
import signal
from pathlib import Path
from typing import Any

from support.brokers.wire_client import WireClient
from support.processes.broker_process import wait_until
from support.processes.client_commands import refusal, run
from support.processes.fleet_process import TRAFFIC, FleetProcess

CLAUSE = "traffic/#?lat>=40&lat<41&lon>=3&lon<5"


def a_payload(lat: float, number: int) -> bytes:
    return json.dumps({"lat": lat, "lon": 4, "number": number}).encode()


def matcher_of(node: FleetProcess) -> dict[str, Any] | None:
    """What the node tells of the only matcher, if it serves."""
    status = json.loads(node.get("/cluster"))
    for entry in status["nodes"]:
        report = entry["report"]
        if entry["role"] == "matcher" and entry["state"] == "alive" and report is not None:
            assert entry["name"] == "a-matcher"
            matcher: dict[str, Any] = report["matcher"]
            return matcher if matcher["phase"] == "serving" else None
    return None


def answered(node: FleetProcess) -> int:
    matcher = matcher_of(node)
    return 0 if matcher is None else int(matcher["points_answered"])


def test_one_process_has_both_and_its_matcher_is_drained_alone(tmp_path: Path) -> None:
    (tmp_path / "dovetail.toml").write_text(TRAFFIC)
    common = ("--config", "dovetail.toml", "--data")
    first = FleetProcess(tmp_path, "node", "--role", "both", "--name", "a", *common, "data-a")
    with first:
        assert "is up, as node a." in first.printed()
        assert "matcher    a-matcher, links " in first.printed()
        links = first.ports("links")[0]
        join = ("--join", f"127.0.0.1:{links}", "--secret-file", "data-a/cluster.secret")
        with FleetProcess(tmp_path, "node", "--name", "b", *join, *common, "data-b") as second:
            wait_until(lambda: matcher_of(second) is not None, "it serves")
            (here,), (there,) = first.ports("MQTT"), second.ports("MQTT")
            with WireClient(here) as publisher, WireClient(there) as subscriber:
                subscriber.subscribe(CLAUSE, 1)

                def is_asked() -> bool:
                    publisher.publish("traffic/x", a_payload(50, 0), 1)
                    return answered(second) > 0

                # SUBACK does not wait long for the matcher to know the box.
                wait_until(is_asked, "the matcher is asked")
                asked = answered(second)
                forwarded = first.metric("dovetail_publishes_forwarded_total")
                for number in range(10):
                    publisher.publish("traffic/x", a_payload(50, number), 1)
                    publisher.publish("traffic/x", a_payload(40.5, number), 1)
                got = [subscriber.receive_message().payload for _ in range(10)]
                assert got == [a_payload(40.5, number) for number in range(10)]
                wait_until(lambda: answered(second) >= asked + 20, "the matcher has told so")
                assert first.metric("dovetail_publishes_forwarded_total") == forwarded + 10
                url = f"http://127.0.0.1:{first.ports('HTTP')[0]}"
                assert run("drain", "a-matcher", "--url", url).returncode == 0
                publisher.publish("traffic/x", a_payload(40.5, 10), 1)
                assert subscriber.receive_message().payload == a_payload(40.5, 10)
            second.wait_for_log("a-matcher has left")
        first.signal(signal.SIGTERM)
        assert first.wait() == 0
        assert "Traceback" not in first.log()


def test_it_hands_over_when_it_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "dovetail.toml").write_text(TRAFFIC)
    with FleetProcess(
        tmp_path, "node", "--role", "both", "--name", "a", "--config", "dovetail.toml"
    ) as node:
        wait_until(lambda: matcher_of(node) is not None, "it serves")
        node.signal(signal.SIGINT)
        assert node.wait() == 0
        node.wait_for_log("leaving: answers until brokers have fed its boxes")
        assert "Traceback" not in node.log()


def test_what_it_does_not_take(tmp_path: Path) -> None:
    config = tmp_path / "dovetail.toml"
    both = ("node", "--role", "both", "--config", config)
    config.write_text("")
    assert "matchers need a space" in refusal(run(*both))
    config.write_text(TRAFFIC)
    assert "it takes neither workers nor matchers" in refusal(run(*both, "--workers", 2))
    assert "--advertise names one" in refusal(run(*both, "--advertise", "192.0.2.1:7000"))
