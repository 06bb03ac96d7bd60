"""Clients at two brokers of a cluster."""

import statistics
import time

import _load_wire as wire
from _load import Client, LoadError

PACKETS_A_PING = 200


def passes(subscriber_port: int, publisher_port: int) -> bool:
    """Return whether a publication at one broker soon reaches a subscriber at the other."""
    subscriber = Client(subscriber_port, "passes-subscriber", wire.MQTT_5)
    publisher = Client(publisher_port, "passes-publisher", wire.MQTT_5)
    try:
        subscriber.subscribe([b"ready/+"], 0)
        publisher.socket.sendall(wire.publish(b"ready/x", b"x", 0, wire.MQTT_5)[0])
        subscriber.socket.settimeout(0.2)
        return bool(subscriber.socket.recv(1_024))
    except TimeoutError:
        return False
    finally:
        subscriber.close()
        publisher.close()


def subscribe_one_by_one(port: int, filters: list[bytes]) -> Client:
    """Subscribe to one filter at a time; return the client with the subscriptions."""
    client = Client(port, "one-by-one", wire.MQTT_5)
    for topic_filter in filters:
        client.subscribe([topic_filter], 0)
    return client


def first_deliveries(here: int, there: int, rounds: int) -> tuple[float, float]:
    """Return median seconds from SUBSCRIBE here to SUBACK, and to a publication made there then."""
    subscriber = Client(here, "late-subscriber", wire.MQTT_5)
    publisher = Client(there, "early-publisher", wire.MQTT_5)
    acknowledged, delivered = [], []
    for number in range(rounds):
        topic = b"late/%d/value" % number
        started = time.perf_counter()
        subscriber.subscribe([topic], 0)
        acknowledged.append(time.perf_counter() - started)
        packet, _ = wire.publish(topic, b"%d" % number, 0, wire.MQTT_5)
        publisher.socket.sendall(packet)
        if topic not in subscriber.expect(wire.PUBLISH):
            raise LoadError("another topic came than was published")
        delivered.append(time.perf_counter() - started)
    subscriber.close()
    publisher.close()
    return statistics.median(acknowledged), statistics.median(delivered)


def publish_all(port: int, topics: list[bytes]) -> None:
    """Publish at QoS 0, no faster than the broker reads."""
    publisher = Client(port, "publisher", wire.MQTT_5)
    for first in range(0, len(topics), PACKETS_A_PING):
        some = topics[first : first + PACKETS_A_PING]
        packets = [wire.publish(topic, b"x" * 64, 0, wire.MQTT_5)[0] for topic in some]
        publisher.socket.sendall(b"".join(packets))
        publisher.check_silent()
    publisher.close()
