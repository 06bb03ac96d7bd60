"""Retains publications that nobody receives now: neighbours of one read, all at once. Pure.

Retained messages are often set before anybody subscribes to their topics. They only enter the table
of retained messages and the journal, so one short loop takes them. A run of them
(codec/kernels/scan.py) has a topic for each packet.

Whatever is not so simple is left to intake.py and dispatch.py, one packet after the other: a topic
with a receiver, a lack of room, a disk that refuses, other brokers. Tests compare both ways.
"""

from collections.abc import Callable

import numpy as np

from dovetail.broker.retained import RetainedMessages
from dovetail.broker.router import Router
from dovetail.broker.run_dispatch import RunOutcome
from dovetail.broker.shared_state import SharedState
from dovetail.codec.run import Run, retained_parts_of
from dovetail.messages import Message


class RetainedRuns:
    """The short way of retained publications."""

    def __init__(
        self,
        shared: SharedState,
        router: Router,
        retained: RetainedMessages,
        expire_retained: Callable[[Message], None],
        *,
        is_alone: bool,
    ) -> None:
        """`is_alone`: there are no other brokers, which would need every retained message."""
        self._shared = shared
        self._router = router
        self._retained = retained
        self._expire_retained = expire_retained
        self._is_alone = is_alone

    def retain(self, run: Run, client_id: str) -> RunOutcome | None:
        """Retain a run of a client, or its first publications.

        Return None, with nothing done, if that is impossible.
        """
        shared = self._shared
        journal = shared.journal
        if not self._is_alone or journal.refuses_more or not self._has_room(run):
            return None
        topics, payloads, ends = retained_parts_of(run)
        self._router.prepare(topics)
        route_of = self._router.cache.young.get
        put, keep = self._retained.put, journal.keep_retained
        qos = run.qos
        count = 0
        for topic, payload in zip(topics, payloads, strict=True):
            route = route_of(topic)
            if route is None or not route.is_nowhere:
                break
            message = Message(topic, payload, qos, True, b"", None, client_id)
            before = put(message)
            keep(message, before)
            if before is not None and before.expires_at is not None:
                self._expire_retained(message)
            count += 1
        if not count:
            return None
        counters = shared.counters
        counters.packets_received += count
        counters.publishes_received += count
        counters.publish_bytes_received += sum(map(len, topics[:count]))
        counters.publish_bytes_received += sum(map(len, payloads[:count]))
        taken = run._replace(data=run.data[: ends[count - 1]], packets=count)
        return RunOutcome(taken, count, np.zeros(count, np.uint8), waits_for_disk=True)

    def _has_room(self, run: Run) -> bool:
        """Would there be room if all topics were new?"""
        limits = self._shared.limits
        retained = self._retained
        return (
            limits.retain_available
            and len(retained) + run.packets <= limits.retained_messages_max
            and retained.nbytes + len(run.data) <= limits.retained_bytes_max
        )
