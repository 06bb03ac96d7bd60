"""How long a connection may be silent. Pure.

- It has `mqtt.connect_timeout_seconds` to be let in.
- From then on one and a half keep alives may pass between two packets, if it has a keep alive.

A link is a timer's key, so there is one deadline at a time.
"""

import logging
from functools import partial

from dovetail.broker.outlet import Outlet, State
from dovetail.broker.state import Shared
from dovetail.broker.timers import Timers
from dovetail.errors import ReasonCode

log = logging.getLogger("dovetail.broker")

_TICK_SECONDS_MAX = 1.0
"""The shell calls `tick` at least so often, and `seen_at` may be older by as much."""


class KeepAlive:
    """The deadlines of all connections of one broker."""

    def __init__(self, shared: Shared, timers: Timers) -> None:
        self._shared = shared
        self._timers = timers

    def expect(self, link: Outlet) -> None:
        """A new connection: it has a while to say who it is."""
        when = self._shared.now + self._shared.limits.connect_timeout_seconds
        self._timers.set(link, when, partial(self._too_slow, link))

    def begin(self, link: Outlet) -> None:
        """The client is let in, and its own interval counts."""
        self.end(link)
        if link.keep_alive_seconds:
            self._watch(link)

    def end(self, link: Outlet) -> None:
        self._timers.cancel(link)

    def _too_slow(self, link: Outlet) -> None:
        if link.state is State.ASKING:  # it is we who are too slow
            link.refuse(ReasonCode.SERVER_UNAVAILABLE, "the broker could not answer in time")
            return
        log.debug("%s did not connect in time", link.peer.address)
        link.close()

    def _watch(self, link: Outlet) -> None:
        self._timers.set(link, self._silent_at(link), partial(self._check_alive, link))

    def _silent_at(self, link: Outlet) -> float:
        # [MQTT-3.1.2-22]: one and a half times the interval, and what our clock may lag behind.
        return link.seen_at + 1.5 * link.keep_alive_seconds + _TICK_SECONDS_MAX

    def _check_alive(self, link: Outlet) -> None:
        if self._silent_at(link) > self._shared.now:
            self._watch(link)
        else:
            link.disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT)
