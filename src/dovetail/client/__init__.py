"""The MQTT clients behind `dovetail pub` and `dovetail sub`, on paho-mqtt.

They work with any MQTT server and use no code of the broker. Each runs in one thread.

    endpoint.py        the connection options, checked before anything is sent
    connection.py      one connection: turns paho's callbacks into calls that return or raise
    publisher.py       `dovetail pub`
    subscriber.py      `dovetail sub`
    message_format.py  formats the messages that `dovetail sub` prints
    sender.py          sends many messages in order, each at least once; the Spark sink uses it
"""

from dovetail.client.connection import ConnectError, ConnectionLostError, RequestRefusedError
from dovetail.client.endpoint import ConnectionOptions
from dovetail.client.message_format import Format
from dovetail.client.publisher import PayloadSource, PublishRequest, publish
from dovetail.client.subscriber import SubscribeRequest, subscribe

__all__ = [
    "ConnectError",
    "ConnectionLostError",
    "ConnectionOptions",
    "Format",
    "PayloadSource",
    "PublishRequest",
    "RequestRefusedError",
    "SubscribeRequest",
    "publish",
    "subscribe",
]
