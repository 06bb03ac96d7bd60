"""How long a connection may be silent. Pure.

- It has `mqtt.connect_timeout_seconds` to be let in.
- From then on one and a half keep alives may pass between two packets, if it has a keep alive.
  It is closed then, and LATE_SECONDS_MAX later at most.
- A tick that is late shows that the broker was held up. What a client has sent meanwhile waits in
  its socket, so who seems silent has until the next tick.

A link is a timer's key, so there is one deadline at a time.
"""

import logging
from functools import partial

from dovetail.broker.outlet import Outlet, State
from dovetail.broker.state import Shared
from dovetail.broker.timers import Timers
from dovetail.errors import ReasonCode

log = logging.getLogger("dovetail.broker")

TICK_SECONDS_MAX = 0.2
"""The shell calls `tick` at least so often, and `seen_at` may be older by as much."""

LATE_SECONDS_MAX = 2 * TICK_SECONDS_MAX
"""What a silent client may have beyond one and a half keep alives."""

_READ_SECONDS = 0.05
"""After a late tick, and before the next: the shell reads what waits in sockets."""


class KeepAlive:
    """The deadlines of all connections of one broker."""

    def __init__(self, shared: Shared, timers: Timers) -> None:
        self._shared = shared
        self._timers = timers
        self._ticked_at = shared.now
        self._is_late = False

    def tick(self, now: float) -> None:
        """Before the timers run."""
        self._is_late = now - self._ticked_at > TICK_SECONDS_MAX
        self._ticked_at = now

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
        # [MQTT-3.1.2-22]: one and a half times the interval, and what `seen_at` may lag behind.
        return link.seen_at + 1.5 * link.keep_alive_seconds + TICK_SECONDS_MAX

    def _check_alive(self, link: Outlet, *, was_late: bool = False) -> None:
        now = self._shared.now
        if link.is_busy:
            link.seen_at = now  # it is we who do not listen
        if self._silent_at(link) > now:
            self._watch(link)
        elif self._is_late and not was_late:
            again = partial(self._check_alive, link, was_late=True)
            self._timers.set(link, self._ticked_at + _READ_SECONDS, again)
        else:
            link.disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT)
