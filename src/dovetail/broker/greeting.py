"""The retained messages that a new subscription asks for, at the pace of the client. Pure.

There may be a million of them, and a client takes what it takes: so many go out as its backlog and
its queue have room for, the rest when there is room again. A message that is not the last word any
more by then is left out, and so is one that came later: the client has had the newer one.

What waits is bounded by the client's subscriptions, however often it subscribes: messages are
looked up when their turn comes, for one subscription at a time.

A client may take many at once, and a filter or a where-clause may pass over all of them: then its
pace sets no bound. So they are gone through in slices (slices.py).
"""

from collections import OrderedDict
from collections.abc import Iterator

from dovetail.broker.deliveries import Delivery
from dovetail.broker.dispatch import Dispatch
from dovetail.broker.outlet import Outlet
from dovetail.broker.retained import RetainedMessages
from dovetail.broker.slices import Slices, Work
from dovetail.broker.spaces import point_of
from dovetail.broker.state import RETAINED_SOURCE, Shared
from dovetail.broker.subscription import Subscription
from dovetail.config import GREETING_LOOKS_PER_PIECE
from dovetail.errors import ClientError
from dovetail.messages import Message

_STALE_MIN = 100


class _Greeting:
    """What a subscription is owed: the messages that were retained when it was made."""

    __slots__ = ("changes", "messages", "ordinal", "subscription")

    def __init__(self, subscription: Subscription, ordinal: int) -> None:
        self.subscription = subscription
        self.ordinal = ordinal
        self.messages: Iterator[Message | None] | None = None
        self.changes = 0  # of all messages, when it began to look for its own

    @property
    def is_stale(self) -> bool:
        subscription = self.subscription
        return subscription.session.subscriptions.get(subscription.key) is not subscription


class Greetings:
    """Those that are under way, by connection."""

    def __init__(
        self,
        shared: Shared,
        slices: Slices,
        retained: RetainedMessages,
        dispatch: Dispatch,
    ) -> None:
        self._shared = shared
        self._slices = slices
        self._retained = retained
        self._dispatch = dispatch
        self._waiting: dict[Outlet, OrderedDict[str, _Greeting]] = {}
        self._sending: dict[Outlet, None] = {}  # what goes on in the turns to come

    def begin(self, link: Outlet, subscription: Subscription) -> None:
        """It is sent with `go_on`."""
        if not len(self._retained):
            return
        greeting = _Greeting(subscription, self._retained.ordinal)
        waiting = self._waiting.setdefault(link, OrderedDict())
        # Asked for again before all of it was sent, it begins again.
        waiting[subscription.key] = greeting
        if len(waiting) > _STALE_MIN:
            # Two are looked at for each that comes, so few of them are stale.
            for _ in range(2):
                key, oldest = waiting.popitem(last=False)
                if not oldest.is_stale:
                    waiting[key] = oldest

    def go_on(self, link: Outlet) -> None:
        """There may be room again."""
        if link in self._waiting and link not in self._sending:
            self._sending[link] = None
            self._slices.begin(self._send(link))

    def is_sending(self, link: Outlet) -> bool:
        """Is there more for it in the next turn?"""
        return link in self._sending

    def go_on_all(self) -> None:
        for link in self._waiting:
            if link not in self._sending:
                self._sending[link] = None
                self._slices.put_off(self._send(link))

    def end(self, link: Outlet) -> None:
        self._waiting.pop(link, None)

    def _send(self, link: Outlet) -> Work:
        """All that the client takes now."""
        try:
            looks_left = GREETING_LOOKS_PER_PIECE
            while waiting := self._waiting.get(link):
                if not looks_left:
                    yield
                    looks_left = GREETING_LOOKS_PER_PIECE
                    continue
                looks_left -= 1
                greeting = next(iter(waiting.values()))
                if greeting.is_stale:
                    waiting.popitem(last=False)
                elif not self._has_room(link, greeting):
                    return
                elif not self._send_next(greeting):
                    waiting.popitem(last=False)
            self._waiting.pop(link, None)
        finally:
            self._sending.pop(link, None)
            link.greeted()

    def _has_room(self, link: Outlet, greeting: _Greeting) -> bool:
        """Otherwise the client has to take some of it first."""
        session = greeting.subscription.session
        limits = self._shared.limits
        return not (
            link.congested
            or link.unsent > limits.backlog_bytes_max // 2
            or session.queued_bytes > limits.queue_bytes_max // 2
            or len(session.queue) + len(session.inflight) > limits.queue_messages_max // 2
        )

    def _send_next(self, greeting: _Greeting) -> bool:
        """Look at one message, and send it if it is wanted. False if there was none."""
        subscription = greeting.subscription
        retained = self._retained
        if greeting.messages is None:
            greeting.messages = retained.walk(subscription.filter)
            greeting.changes = retained.changes
        try:
            message = next(greeting.messages)
        except StopIteration:
            return False
        if (
            message is not None
            and message.ordinal <= greeting.ordinal
            and (message.expires_at is None or message.expires_at > self._shared.now)
            and _is_wanted(subscription, message)
            and (greeting.changes == retained.changes or retained.get(message.topic) is message)
        ):
            delivery = Delivery.of(subscription.session, (subscription,))
            self._shared.source = RETAINED_SOURCE
            self._dispatch.deliver(delivery, message, True, [])  # [MQTT3-3.3.1-8]
            self._shared.source = ""
        return True


def _is_wanted(subscription: Subscription, message: Message) -> bool:
    """Is it somebody else's, if it has to be, and does the where-clause hold, if there is one?"""
    if subscription.no_local and message.origin == subscription.session.client_id:
        return False
    if subscription.key == subscription.filter:
        return True
    clause = subscription.clause
    if clause is None:
        return False
    try:
        point = point_of(clause.space, message)
    except ClientError:
        return False
    return point is not None and clause.holds(point)
