"""Sensors along the roads of a city, and drivers who get only the readings that concern them.

    .venv/bin/python examples/traffic/city.py

It starts a broker of its own (dovetail.toml declares the attributes), on a free port, and ends by
itself. Sensors publish their readings with attributes, and know no driver. Each driver subscribes
with a where-clause, and the broker sends what matches. At the end the example compares what each
driver saw with what it should have seen: the exit code is 0 if they are equal.

It shows attributes as user properties of PUBLISH, a where-clause as a user property of SUBSCRIBE,
and a where-clause behind the topic filter, from a client of MQTT 3.1.1.
"""

import os
import queue
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

CONFIG = Path(__file__).parent / "dovetail.toml"
READINGS = 400
SHOWN = 3
CLOSING = "city/closing"
WAIT_SECONDS = 30.0

Reading = Mapping[str, str | float]
"""The attributes of a publication, by name."""


@dataclass
class Driver:
    """A subscriber with a where-clause; `wants` is the same in Python, for the check at the end."""

    name: str
    topic_filter: str
    clause: str
    wants: Callable[[Reading], bool]
    is_behind_filter: bool = False
    seen: list[str] = field(default_factory=list)
    _inbox: "queue.Queue[MQTTMessage]" = field(default_factory=queue.Queue)
    _answers: "queue.Queue[list[int]]" = field(default_factory=queue.Queue)

    def subscribe(self, port: int) -> None:
        """Subscribe, and return when the broker has granted it."""
        version = MQTTProtocolVersion.MQTTv5
        topic_filter, properties = self.topic_filter, Properties(PacketTypes.SUBSCRIBE)
        if self.is_behind_filter:
            version = MQTTProtocolVersion.MQTTv311
            topic_filter, properties = f"{self.topic_filter}?{self.clause}", None
        else:
            properties.UserProperty = [("where", self.clause)]
        self._client = connected(port, version)
        self._client.on_message = lambda _client, _data, message: self._inbox.put(message)
        self._client.on_subscribe = lambda _client, _data, _number, codes, _properties: (
            self._answers.put([code.value for code in codes])
        )
        self._client.subscribe(topic_filter, qos=1, properties=properties)
        self._check_granted()
        self._client.subscribe(CLOSING, qos=1)  # without a clause: all of it
        self._check_granted()

    def _check_granted(self) -> None:
        codes = self._answers.get(timeout=WAIT_SECONDS)
        if codes != [1]:
            sys.exit(f"{self.name}: the broker refused the subscription, with {codes}")

    def watch(self) -> None:
        """Receive readings until the sensors have closed."""
        while (message := self._inbox.get(timeout=WAIT_SECONDS)).topic != CLOSING:
            self.seen.append(message.payload.decode())

    def leave(self) -> None:
        leave(self._client)

    def check(self, readings: list[Reading]) -> bool:
        """Print the readings seen; return whether they are the matching ones, each once."""
        wanted = [text_of(reading) for reading in readings if self.wants(reading)]
        is_right = sorted(self.seen) == sorted(wanted)
        verdict = "all that it wants" if is_right else f"AND SHOULD HAVE SEEN {len(wanted)}"
        print(f"{self.name} asked for  {self.clause}")
        print(f"  and saw {len(self.seen)} of {len(readings)} readings, {verdict}:")
        for line in self.seen[:SHOWN]:
            print(f"    {line}")
        print("    ...")
        return is_right


DRIVERS = (
    Driver(
        "Ann, downtown,",
        "traffic/#",
        "40.70 <= lat < 40.75 and -74.02 <= lon < -73.97 and speed < 25",
        lambda one: (
            40.70 <= number(one, "lat") < 40.75
            and -74.02 <= number(one, "lon") < -73.97
            and number(one, "speed") < 25
        ),
    ),
    Driver(
        "Bob, on his way home,",
        "traffic/+/flow",
        'road in ("A1", "A2") and speed < 40 or road == "B9" and speed < 20',
        lambda one: (
            (one["road"] in ("A1", "A2") and number(one, "speed") < 40)
            or (one["road"] == "B9" and number(one, "speed") < 20)
        ),
    ),
    Driver(
        "Cleo, who fears ice,",
        "traffic/#",
        'temperature <= 0 or surface == "ice"',
        # Some sensors have no thermometer: a missing attribute matches nothing.
        lambda one: number(one, "temperature") <= 0 or one.get("surface") == "ice",
    ),
    Driver(
        "Dan, with an old phone,",
        "traffic/+/flow",
        "road=A1&speed>=100",
        lambda one: one["road"] == "A1" and number(one, "speed") >= 100,
        is_behind_filter=True,
    ),
)


def number(reading: Reading, name: str) -> float:
    return float(reading.get(name, "nan"))


def main() -> None:
    readings = [*measure(random.Random(7), READINGS)]
    with running_broker() as port:
        print(f"A broker is up on port {port}.")
        for driver in DRIVERS:
            driver.subscribe(port)
        publish(readings, port)
        for driver in DRIVERS:
            driver.watch()
            driver.leave()
    checks = [driver.check(readings) for driver in DRIVERS]
    sys.exit(0 if all(checks) else 1)


@contextmanager
def running_broker(config: Path = CONFIG) -> Iterator[int]:
    """Run a broker with the attributes of dovetail.toml, and yield its port."""
    with tempfile.TemporaryDirectory() as folder:
        broker = subprocess.Popen(
            [sys.executable, "-m", "dovetail", "up", "--config", str(config), "--data", folder],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        with broker:
            try:
                yield port_of(broker)
            finally:
                broker.terminate()


def port_of(broker: "subprocess.Popen[str]") -> int:
    """Return the port that the broker prints when it is up."""
    assert broker.stdout is not None
    for line in broker.stdout:
        found = re.match(r" +MQTT +\S+:(\d+)", line)
        if found:
            return int(found[1])
    sys.exit("The broker did not start.")


def measure(chance: random.Random, count: int) -> Iterator[Reading]:
    """Yield the readings of the sensors."""
    for _ in range(count):
        reading: dict[str, str | float] = {
            "lat": round(chance.uniform(40.68, 40.80), 4),
            "lon": round(chance.uniform(-74.05, -73.90), 4),
            "speed": chance.randrange(0, 131),
            "road": chance.choice(["A1", "A2", "B9", "C17"]),
        }
        if chance.random() < 0.5:
            reading["temperature"] = chance.randrange(-5, 25)
        if chance.random() < 0.2:
            reading["surface"] = chance.choice(["wet", "ice"])
        yield reading


def publish(readings: list[Reading], port: int) -> None:
    """Publish, and return when the broker has acknowledged all readings."""
    sensors = connected(port, MQTTProtocolVersion.MQTTv5)
    sent = []
    for reading in readings:
        attributes = Properties(PacketTypes.PUBLISH)
        attributes.UserProperty = [(name, str(value)) for name, value in reading.items()]
        topic = f"traffic/{reading['road']}/flow"
        sent.append(sensors.publish(topic, text_of(reading), qos=1, properties=attributes))
    for one in sent:
        one.wait_for_publish(WAIT_SECONDS)
    sensors.publish(CLOSING, "that was all", qos=1).wait_for_publish(WAIT_SECONDS)
    leave(sensors)


def text_of(reading: Reading) -> str:
    return ", ".join(f"{name} {value}" for name, value in reading.items())


def connected(port: int, version: MQTTProtocolVersion) -> Client:
    client = Client(CallbackAPIVersion.VERSION2, protocol=version)
    client.max_inflight_messages_set(100)
    client.connect("localhost", port)
    client.loop_start()
    return client


def leave(client: Client) -> None:
    client.disconnect()
    client.loop_stop()


if __name__ == "__main__":
    main()
