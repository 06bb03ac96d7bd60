"""Publishes the `$SYS` topics of a broker at an interval (broker/sys_topics.py has the table)."""

import asyncio

from dovetail import __version__
from dovetail.broker.net.server import BrokerServer
from dovetail.broker.sys_topics import SysTopics
from dovetail.messages import Message

_NAME_TOPIC = b"$SYS/broker/dovetail/name"


async def publish_sys(server: BrokerServer, name: str, interval_seconds: float) -> None:
    """Publish the name of the broker once, and changed values until the task is cancelled."""
    topics = SysTopics(__version__, server.clock())
    server.broker.publish(Message(_NAME_TOPIC, name.encode(), retain=True))
    while True:
        now = server.clock()
        server.broker.tick(now)
        for topic, payload in topics.publish(server.shared.counters, server.shared.gauges, now):
            server.broker.publish(Message(topic, payload, retain=True))
        await asyncio.sleep(interval_seconds)
