"""Closes connections that are silent for too long. Pure.

- A client has `mqtt.connect_timeout_seconds` to be admitted.
- After that it may be silent for one and a half keep alive intervals, if it has a keep alive. The
  broker closes the connection then, at most LATE_SECONDS_MAX later.
- A late tick shows that the broker was busy. Packets of a seemingly silent client may wait in its
  socket, so it gets another moment to be read.

All clients have the same time to be admitted, so the oldest is due first, and one timer is enough.
After that the link is the timer's key.
"""

import logging
from collections import OrderedDict
from functools import partial

from dovetail.broker.client_link import ClientLink, LinkState
from dovetail.broker.shared_state import SharedState
from dovetail.broker.timers import Timers
from dovetail.errors import ReasonCode

log = logging.getLogger("dovetail.broker")

TICK_SECONDS_MAX = 0.2
"""The longest time between two calls of `tick`. `seen_at` may be older by as much."""

LATE_SECONDS_MAX = 2 * TICK_SECONDS_MAX
"""The longest time that a silent client stays beyond one and a half keep alive intervals."""

_ADMISSION = "admission"
"""The key of the timer for the oldest connection that is not admitted yet."""

_READ_SECONDS = 0.05
"""The time for the shell to read waiting sockets after a late tick."""


class KeepAlive:
    """The deadlines of all connections of one broker."""

    def __init__(self, shared: SharedState, timers: Timers) -> None:
        self._shared = shared
        self._timers = timers
        self._ticked_at = shared.now
        self._is_late = False
        self._unadmitted: OrderedDict[ClientLink, float] = OrderedDict()
        """When the time of each connection is over that is not admitted yet, oldest first."""

    def tick(self, now: float) -> None:
        """Note whether this tick is late. Call it before the timers run."""
        self._is_late = now - self._ticked_at > TICK_SECONDS_MAX
        self._ticked_at = now

    def await_admission(self, link: ClientLink) -> None:
        """Give a new connection its time to be admitted."""
        when = self._shared.now + self._shared.limits.connect_timeout_seconds
        if not self._unadmitted:
            self._timers.set(_ADMISSION, when, self._close_oldest)
        self._unadmitted[link] = when

    def begin(self, link: ClientLink) -> None:
        """Watch an admitted client by its own keep alive."""
        self._end_wait(link)
        if link.keep_alive_seconds:
            self._watch(link)

    def end(self, link: ClientLink) -> None:
        self._end_wait(link)
        if link.keep_alive_seconds:
            self._timers.cancel(link)

    def _end_wait(self, link: ClientLink) -> None:
        if self._unadmitted.pop(link, None) is not None and not self._unadmitted:
            self._timers.cancel(_ADMISSION)

    def _close_oldest(self) -> None:
        """Close the oldest connection if its time is over. Then the next one is the oldest.

        The timer may be that of an older connection, which was admitted or has gone.
        """
        link, when = next(iter(self._unadmitted.items()))
        if when <= self._shared.now:
            self._too_slow(link)
        if self._unadmitted:
            when = next(iter(self._unadmitted.values()))
            self._timers.set(_ADMISSION, when, self._close_oldest)

    def _too_slow(self, link: ClientLink) -> None:
        if link.state is LinkState.ADMITTING:  # the broker is too slow, not the client
            link.refuse(ReasonCode.SERVER_UNAVAILABLE, "the broker could not answer in time")
            return
        log.debug("%s did not connect in time", link.remote.address)
        link.close()

    def _watch(self, link: ClientLink) -> None:
        self._timers.set(link, self._silent_at(link), partial(self._check_alive, link))

    def _silent_at(self, link: ClientLink) -> float:
        # [MQTT-3.1.2-22]: one and a half times the interval, plus the lag of `seen_at`.
        return link.seen_at + 1.5 * link.keep_alive_seconds + TICK_SECONDS_MAX

    def _check_alive(self, link: ClientLink, *, was_late: bool = False) -> None:
        now = self._shared.now
        if link.is_busy:
            link.seen_at = now  # the client is not silent: we do not read
        if self._silent_at(link) > now:
            self._watch(link)
        elif self._is_late and not was_late:
            again = partial(self._check_alive, link, was_late=True)
            self._timers.set(link, self._ticked_at + _READ_SECONDS, again)
        else:
            link.disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT)
