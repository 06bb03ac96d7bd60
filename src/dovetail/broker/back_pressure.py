"""Has publishers wait whose only receivers are behind, before anything is dropped. Pure.

A receiver's backlog are the bytes that it has not read. Of `mqtt.backlog_bytes_max` it has

    more than 4/8     the receiver is behind
    more than 6/8     publishers wait that have no other receivers, until it has 5/8
    more than all     messages at QoS 0 are dropped

While a publisher waits, the broker does not read from it, so TCP slows it down. Rules:

- A publisher waits before a publication is taken, and only if nobody else could get publications
  of this topic: no receiver with room, no queue, no other broker, no archive.
- A publisher that lately served somebody who keeps up never waits: that receiver would wait, too.
  This is noted only while some receiver is behind.
- It waits until one of its receivers is down to 5/8, or has gone.
- If none is after `mqtt.publisher_wait_seconds`, the receivers are given up: no publisher waits for
  them until they are down to 5/8 once.
- The time begins when the first publisher waits for a receiver. So nobody waits longer.

Links report what they have not sent (client_link.py), and packet_reader.py stops and goes on.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from dovetail.broker.limits import SERVED_SECONDS

if TYPE_CHECKING:
    from dovetail.broker.client_link import ClientLink
    from dovetail.broker.outgoing_message import SubscriberLink
    from dovetail.broker.route import Route
    from dovetail.broker.shared_state import SharedState
    from dovetail.broker.timers import Timers


class _Wait(NamedTuple):
    """A publisher that waits."""

    receivers: Sequence["SubscriberLink"]
    since: float
    resume: Callable[[], None]


class _Served:
    """A receiver that a publisher has besides those that are behind."""

    __slots__ = ("at", "receiver")

    def __init__(self, receiver: "SubscriberLink | None", at: float) -> None:
        self.receiver = receiver
        """None: another broker, the archive, or a queue."""
        self.at = at


class BackPressure:
    """The receivers of one broker that are behind, and the publishers that wait for them."""

    def __init__(self, shared: "SharedState", timers: "Timers") -> None:
        self.behind: set[SubscriberLink] = set()
        """While it is empty, no publication has to be looked at."""
        self._shared = shared
        self._timers = timers
        self._wait_seconds = shared.limits.publisher_wait_seconds
        self._full_bytes = shared.limits.backlog_bytes_max // 8 * 6
        self._waits: dict[ClientLink, _Wait] = {}
        self._publishers: dict[SubscriberLink, dict[ClientLink, None]] = {}
        """Those that wait for a receiver, in order."""
        self._given_up: set[SubscriberLink] = set()
        self._served: dict[ClientLink, _Served] = {}

    # Receivers ------------------------------------------------------------------------------------

    def fell_behind(self, receiver: "ClientLink") -> bool:
        """Note that a receiver has more than half a backlog. Return True if that is news."""
        if receiver in self.behind or receiver.is_closed or not self._wait_seconds:
            return False
        self.behind.add(receiver)
        return True

    def caught_up(self, receiver: "SubscriberLink") -> None:
        """Note that a receiver is down to 5/8 of a backlog, or has gone."""
        self.behind.discard(receiver)
        self._given_up.discard(receiver)
        for publisher in [*self._publishers.get(receiver, ())]:
            self._resume(publisher)

    def _give_up(self, receiver: "SubscriberLink") -> None:
        """Have publishers no longer wait for a receiver that takes too long."""
        self._given_up.add(receiver)
        for publisher in [*self._publishers[receiver]]:
            if self._given_up.issuperset(self._waits[publisher].receivers):
                self._shared.counters.publisher_waits_expired += 1
                self._resume(publisher)

    # Publishers -----------------------------------------------------------------------------------

    def awaited(
        self, publisher: "ClientLink", route: "Route", qos: int
    ) -> Sequence["SubscriberLink"]:
        """Return the receivers that a publication has to wait for: none if it may go on."""
        session = publisher.session
        assert session is not None
        if route.has_other_receivers:
            return self._serve(publisher, None)
        full: dict[SubscriberLink, None] = {}  # one may have several subscriptions
        has_room = False
        behind = self.behind
        for receiver, receiver_qos in route.receivers(session.client_id):
            link = receiver.link
            if (qos and receiver_qos) or receiver.is_handle:
                return self._serve(publisher, None)
            if link is None:
                continue
            if link not in behind:
                return self._serve(publisher, link)
            if link.unsent > self._full_bytes:
                link.flush_backlog()
            if link.unsent <= self._full_bytes:
                has_room = True
            elif link not in self._given_up:
                full[link] = None
        return () if has_room or self._serves_others(publisher) else tuple(full)

    def _serve(self, publisher: "ClientLink", receiver: "SubscriberLink | None") -> tuple[()]:
        """Note a receiver that keeps up. The first one is enough, as long as it does."""
        known = self._served.get(publisher)
        if known is not None and known.receiver is receiver:
            known.at = self._shared.now
        elif not self._serves_others(publisher):
            self._served[publisher] = _Served(receiver, self._shared.now)
        return ()

    def _serves_others(self, publisher: "ClientLink") -> bool:
        known = self._served.get(publisher)
        return (
            known is not None
            and known.receiver not in self.behind
            and self._shared.now - known.at <= SERVED_SECONDS
        )

    def wait(
        self,
        publisher: "ClientLink",
        receivers: Sequence["SubscriberLink"],
        resume: Callable[[], None],
    ) -> None:
        """Call `resume` when one of the receivers has room, none will have, or the link closes."""
        now = self._shared.now
        self._waits[publisher] = _Wait(receivers, now, resume)
        for receiver in receivers:
            publishers = self._publishers.setdefault(receiver, {})
            if not publishers:
                give_up = partial(self._give_up, receiver)
                self._timers.set(("publisher wait", receiver), now + self._wait_seconds, give_up)
            publishers[publisher] = None
        self._shared.counters.publisher_waits += 1
        self._shared.gauges.publishers_waiting = len(self._waits)

    def _resume(self, publisher: "ClientLink") -> None:
        wait = self._waits.pop(publisher)
        for receiver in wait.receivers:
            publishers = self._publishers[receiver]
            del publishers[publisher]
            if not publishers:
                del self._publishers[receiver]
                self._timers.cancel(("publisher wait", receiver))
        shared = self._shared
        shared.counters.publisher_wait_milliseconds += int((shared.now - wait.since) * 1_000)
        shared.gauges.publishers_waiting = len(self._waits)
        wait.resume()

    # Both -----------------------------------------------------------------------------------------

    def end(self, link: "ClientLink") -> None:
        """Forget a closed link. Its publishers go on without it."""
        self._served.pop(link, None)
        if link in self._waits:
            self._resume(link)
        if link in self.behind or link in self._publishers:
            self.caught_up(link)
