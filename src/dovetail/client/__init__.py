"""The clients of the command line: `dovetail pub` and `dovetail sub`, on paho-mqtt.

They talk to any MQTT server and know no broker. Each runs in one thread.

    endpoint.py        where to connect and as whom, checked before anything is sent
    connection.py      turns paho's callbacks into calls that return or raise
    publisher.py       `dovetail pub`
    subscriber.py      `dovetail sub`
    message_format.py  what `dovetail sub` prints for a message
    sender.py          sends many messages in order, each at least once; the Spark sink uses it
"""

from dovetail.client.connection import ConnectError, LostError, RefusedError
from dovetail.client.endpoint import ConnectionOptions
from dovetail.client.message_format import Format
from dovetail.client.publisher import Publication, Source, publish
from dovetail.client.subscriber import Subscription, subscribe

__all__ = [
    "ConnectError",
    "ConnectionOptions",
    "Format",
    "LostError",
    "Publication",
    "RefusedError",
    "Source",
    "Subscription",
    "publish",
    "subscribe",
]
