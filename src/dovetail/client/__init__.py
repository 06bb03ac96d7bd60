"""The clients of the command line: `dovetail pub` and `dovetail sub`, on paho-mqtt.

They talk to any MQTT server, and know nothing of ours. One thread does all: `connection.py` turns
paho's callbacks into calls that return or raise, and the two commands are loops over it.
"""

from dovetail.client.connection import ConnectError, LostError, RefusedError
from dovetail.client.options import ConnectionOptions
from dovetail.client.printing import Format
from dovetail.client.publishing import Publication, Source, publish
from dovetail.client.subscribing import Subscription, subscribe

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
