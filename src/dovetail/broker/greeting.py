"""The retained messages that a new subscription asks for, at the pace of the client. Pure.

There may be a million of them, and a client takes what it takes: so many go out as its backlog and
its queue have room for, the rest when there is room again. A message that is not the last word any
more by then is left out: the client has had the newer one.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from dovetail.broker.dispatch import Dispatch
from dovetail.broker.outlet import Outlet
from dovetail.broker.retained import RetainedMessages
from dovetail.broker.routing import Delivery
from dovetail.broker.session import Subscription
from dovetail.broker.state import Shared
from dovetail.messages import Message


class _Greeting(NamedTuple):
    subscription: Subscription
    messages: Iterator[Message]


class Greetings:
    """Those that are under way, by connection."""

    def __init__(self, shared: Shared, retained: RetainedMessages, dispatch: Dispatch) -> None:
        self._shared = shared
        self._retained = retained
        self._dispatch = dispatch
        self._waiting: dict[Outlet, deque[_Greeting]] = {}

    def begin(self, link: Outlet, subscription: Subscription) -> None:
        if subscription.filter.startswith("$share/"):  # section 4.8.2
            return
        # A copy, because the tree may change before the last one is sent.
        greeting = _Greeting(subscription, iter(list(self._retained.match(subscription.filter))))
        if link in self._waiting:
            self._waiting[link].append(greeting)
        elif not self._send(link, greeting, is_new=True):
            self._waiting[link] = deque([greeting])

    def go_on(self, link: Outlet) -> None:
        """There may be room again."""
        waiting = self._waiting.get(link)
        if waiting is None:
            return
        while waiting:
            if not self._send(link, waiting[0], is_new=False):
                return
            waiting.popleft()
        del self._waiting[link]

    def go_on_all(self) -> None:
        for link in list(self._waiting):
            self.go_on(link)

    def end(self, link: Outlet) -> None:
        self._waiting.pop(link, None)

    def _send(self, link: Outlet, greeting: _Greeting, *, is_new: bool) -> bool:
        """False if the client has to take some of it first."""
        subscription = greeting.subscription
        session = subscription.session
        if session.subscriptions.get(subscription.filter) is not subscription:
            return True
        limits = self._shared.limits
        delivery = Delivery(session, (subscription,))
        while True:
            if (
                link.congested
                or link.unsent > limits.backlog_bytes_max // 2
                or session.queued_bytes > limits.queue_bytes_max // 2
                or len(session.queue) + len(session.inflight) > limits.queue_messages_max // 2
            ):
                return False
            message = next(greeting.messages, None)
            if message is None:
                return True
            if message.expires_at is not None and message.expires_at <= self._shared.now:
                continue
            if subscription.no_local and message.origin == session.client_id:
                continue
            if is_new or self._retained.get(message.topic) is message:
                self._dispatch.deliver(delivery, message, True, [])  # [MQTT3-3.3.1-8]
