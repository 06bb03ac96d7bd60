"""A door that reports, and a guard who misses nothing: paho-mqtt clients of a local broker.

Start a broker in one terminal, with ./dovetail up, and in another:

    .venv/bin/python examples/pubsub.py          # or with its port, if that is not 1883

It shows a subscription with a wildcard, a persistent session, a retained message, and a will.
"""

import queue
import sys

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 1883
WAIT_SECONDS = 10.0


class Guard:
    """Subscribes to every door, at QoS 1."""

    def __init__(self) -> None:
        self._received: queue.Queue[MQTTMessage] = queue.Queue()
        self._subscribed: queue.Queue[int] = queue.Queue()
        self._client = make_client("guard")
        self._client.on_message = lambda _client, _data, message: self._received.put(message)
        self._client.on_subscribe = lambda _client, _data, number, _codes, _properties: (
            self._subscribed.put(number)
        )

    def arrive(self, *, stay_known_seconds: int, clean: bool) -> None:
        connect(self._client, session_expiry_seconds=stay_known_seconds, clean=clean)

    def watch(self, topic_filter: str) -> None:
        """Subscribe, and return when the broker has granted it."""
        self._client.subscribe(topic_filter, qos=1)
        self._subscribed.get(timeout=WAIT_SECONDS)

    def note(self) -> None:
        """Print the next message."""
        message = self._received.get(timeout=WAIT_SECONDS)
        how = " (retained)" if message.retain else ""
        print(f"  guard notes: {message.topic} {message.payload.decode()}{how}")

    def leave(self) -> None:
        leave(self._client)


def main() -> None:
    guard = Guard()
    print("The guard arrives, and watches every door.")
    guard.arrive(stay_known_seconds=3_600, clean=True)
    guard.watch("building3/+/door")

    door = make_client("door-of-room1")
    # The broker publishes this if the door vanishes.
    door.will_set("building3/room1/door", "silent", qos=1)
    connect(door)
    report(door, "building3/room1/door", "open")
    guard.note()

    print("The guard leaves. The broker keeps the session and its messages.")
    guard.leave()
    report(door, "building3/room1/door", "closed")
    report(door, "building3/room1/lamp", "on", retain=True)
    # No DISCONNECT: the broker must assume that the door is gone.
    socket = door.socket()
    assert socket is not None
    door.loop_stop()
    socket.close()

    print("The guard is back.")
    guard.arrive(stay_known_seconds=0, clean=False)
    guard.note()
    guard.note()

    print("The guard looks at lamps, too.")
    guard.watch("building3/+/lamp")
    guard.note()
    guard.leave()

    # An empty retained message removes the last one.
    cleaner = make_client("cleaner")
    connect(cleaner)
    report(cleaner, "building3/room1/lamp", "", retain=True)
    leave(cleaner)


def make_client(client_id: str) -> Client:
    return Client(CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv5)


def connect(client: Client, *, session_expiry_seconds: int = 0, clean: bool = True) -> None:
    wishes = Properties(PacketTypes.CONNECT)
    wishes.SessionExpiryInterval = session_expiry_seconds
    try:
        client.connect("localhost", PORT, clean_start=clean, properties=wishes)
    except ConnectionRefusedError:
        sys.exit(f"Nobody listens on port {PORT}: start a broker with ./dovetail up")
    client.loop_start()


def leave(client: Client) -> None:
    client.disconnect()
    client.loop_stop()


def report(client: Client, topic: str, payload: str, *, retain: bool = False) -> None:
    """Publish, and return when the broker has acknowledged it."""
    client.publish(topic, payload, qos=1, retain=retain).wait_for_publish(WAIT_SECONDS)


if __name__ == "__main__":
    main()
