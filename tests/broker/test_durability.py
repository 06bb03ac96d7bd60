"""What acknowledgements are worth: kills, a full disk, a disk that may only be read.

The broker is a process, and so is its end: SIGKILL, at moments that a seeded generator chooses by
how much has been acknowledged since the start. Clients come back with the state that MQTT says they
keep. In the end every publication that was acknowledged is where it belongs, and none of QoS 2 is
there twice.
"""

import contextlib
import os
import random
import sqlite3
import subprocess
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path

import mounts
import paho.mqtt.client as paho
import pytest
from broker_process import WAIT_SECONDS, BrokerProcess, free_port, wait_until
from wire_client import WireClient

from dovetail.broker.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Ack,
    Disconnect,
    Packet,
    PacketType,
    Publish,
)
from dovetail.errors import ReasonCode

KILLS = 16
KILLING_SECONDS_MAX = 40.0
KILLS_MIN = 4
"""On a machine so slow that the others do not fit into the time."""

ACKNOWLEDGEMENTS_MAX = 2_000
"""A life of the broker ends after at most so many."""

WINDOW = 50
RETAINED_TOPICS = 20

QUIET = """
[[listeners]]
kind = "tcp"
port = 0
[http]
enabled = false
[log]
level = "warning"
[mqtt]
queue_messages_max = 1_000_000
"""


class Reconnecting(threading.Thread):
    """A client that always comes back, with all it knew, until it is told to end."""

    def __init__(self, port: int, client_id: str, version: int) -> None:
        super().__init__(name=client_id, daemon=True)
        self.client_id = client_id
        self.version = version
        self.failure: BaseException | None = None
        self.ending = threading.Event()
        self._port = port

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                # A broker that is down, or goes down: that is what this is about.
                with contextlib.suppress(ConnectionError), self._connect() as client:
                    self.talk(client)
                time.sleep(0.01)
        except BaseException as error:  # noqa: BLE001 (shown by the test)
            self.failure = error

    def _connect(self) -> WireClient:
        return WireClient(self._port, self.client_id, kept=True, version=self.version)

    def talk(self, client: WireClient) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self.ending.set()


class Publisher(Reconnecting):
    """Publishes numbers without end, and keeps what is not acknowledged.

    `acknowledged` has those whose PUBACK or PUBREC has come.
    """

    def __init__(
        self, port: int, client_id: str, version: int, qos: int, topics: int, retain: bool = False
    ) -> None:
        super().__init__(port, client_id, version)
        self.qos = qos
        self.retain = retain
        self.acknowledged: set[bytes] = set()
        self.last_retained: dict[str, int] = {}
        """By topic, the last number that was acknowledged."""
        self._topics = topics
        self._number = 0
        self._inflight: dict[int, Packet] = {}
        """PUBLISH or PUBREL by packet identifier, in their order."""
        self._packet_id = 0
        self._stored = False

    @property
    def is_idle(self) -> bool:
        return not self._inflight

    def talk(self, client: WireClient) -> None:
        assert client.connack.session_present or not self._stored, "a session was lost"
        for packet in self._inflight.values():  # [MQTT-4.4.0-1]
            if isinstance(packet, Publish):
                packet.duplicate = True
            client.send(packet)
        while True:
            while len(self._inflight) < WINDOW and not self.ending.is_set():
                client.send(self._next())
            if not self._inflight:
                return
            packet = client.receive()
            if packet is None:
                return
            assert isinstance(packet, Ack), packet
            self._take(client, packet)

    def run(self) -> None:
        super().run()
        while self._inflight and self.failure is None:  # the last ones
            self.ending.clear()
            stopping = threading.Event()
            stopping.set()
            self.ending, ending = stopping, self.ending
            try:
                with contextlib.suppress(ConnectionError), self._connect() as client:
                    self.talk(client)
            except BaseException as error:  # noqa: BLE001
                self.failure = error
            del ending

    def _next(self) -> Publish:
        self._number += 1
        while True:
            self._packet_id = self._packet_id % 65_535 + 1
            if self._packet_id not in self._inflight:
                break
        packet = Publish(
            f"{self.client_id}/{self._number % self._topics}".encode(),
            b"%s %d" % (self.client_id.encode(), self._number),
            self.qos,
            retain=self.retain,
            packet_id=self._packet_id,
        )
        self._inflight[self._packet_id] = packet
        return packet

    def _take(self, client: WireClient, ack: Ack) -> None:
        packet = self._inflight.get(ack.packet_id)
        if ack.type == PacketType.PUBCOMP:
            assert isinstance(packet, Ack), "PUBCOMP for what was not released"
            del self._inflight[ack.packet_id]
            return
        if isinstance(packet, Ack):
            return  # PUBREC came again, after a PUBLISH that was sent twice
        assert isinstance(packet, Publish), ack
        assert ack.reason in {ReasonCode.SUCCESS, ReasonCode.NO_MATCHING_SUBSCRIBERS}, ack
        self._stored = self._stored or self.qos == 2
        self.acknowledged.add(packet.payload)
        self.last_retained[packet.topic.decode()] = int(packet.payload.split()[1])
        if self.qos == 1:
            del self._inflight[ack.packet_id]
        else:
            release = Ack(PacketType.PUBREL, ack.packet_id)
            self._inflight[ack.packet_id] = release
            client.send(release)
