"""The retained messages that a new subscription asks for, at the pace of the client. Pure.

There may be a million of them, and a client takes what it takes: so many go out as its backlog and
its queue have room for, the rest when there is room again. A message that is not the last word any
more by then is left out, and so is one that came later: the client has had the newer one.

What waits is bounded by the client's subscriptions, however often it subscribes: messages are
looked up when their turn comes, for one subscription at a time.

A where-clause may pass over all of them, and then the client's pace sets no bound. So only so many
are held against clauses in one turn, and the rest in the next ones: others are served in between.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator

from dovetail.broker.deliveries import Delivery
from dovetail.broker.dispatch import Dispatch
from dovetail.broker.outlet import Outlet
from dovetail.broker.retained import RetainedMessages
from dovetail.broker.spaces import point_of
from dovetail.broker.state import RETAINED_SOURCE, Shared
from dovetail.broker.subscription import Subscription
from dovetail.config import GREETING_LOOKS_MAX
from dovetail.errors import ClientError
from dovetail.messages import Message

_STALE_MIN = 100


class _Greeting:
    """What a subscription is owed: the messages that were retained when it was made."""

    __slots__ = ("messages", "ordinal", "subscription")

    def __init__(self, subscription: Subscription, ordinal: int) -> None:
        self.subscription = subscription
        self.ordinal = ordinal
        self.messages: Iterator[Message] | None = None

    @property
    def is_stale(self) -> bool:
        subscription = self.subscription
        return subscription.session.subscriptions.get(subscription.key) is not subscription


class Greetings:
    """Those that are under way, by connection."""

    def __init__(
        self,
        shared: Shared,
        retained: RetainedMessages,
        dispatch: Dispatch,
        schedule: Callable[[], None],
    ) -> None:
        """`schedule`: have `next_turn` called."""
        self._shared = shared
        self._retained = retained
        self._dispatch = dispatch
        self._schedule = schedule
        self._waiting: dict[Outlet, OrderedDict[str, _Greeting]] = {}
        self._paused: dict[Outlet, None] = {}  # for the next turn
        self._looks_left = 0

    def begin(self, link: Outlet, subscription: Subscription) -> None:
        """It is sent with `go_on`."""
        if not len(self._retained):
            return
        greeting = _Greeting(subscription, self._retained.ordinal)
        waiting = self._waiting.setdefault(link, OrderedDict())
        # Asked for again before all of it was sent, it begins again.
        waiting[subscription.key] = greeting
        if len(waiting) > 2 * len(subscription.session.subscriptions) + _STALE_MIN:
            for key in [key for key, one in waiting.items() if one.is_stale]:
                del waiting[key]

    def go_on(self, link: Outlet) -> None:
        """There may be room again."""
        waiting = self._waiting.get(link)
        if waiting is None:
            return
        self._looks_left = GREETING_LOOKS_MAX
        while waiting:
            if not self._send(link, next(iter(waiting.values()))):
                if not self._looks_left:
                    self._paused[link] = None
                    self._schedule()
                return
            waiting.popitem(last=False)
        del self._waiting[link]

    def next_turn(self) -> None:
        """Others have been served."""
        paused, self._paused = self._paused, {}
        for link in paused:
            self.go_on(link)
            if link not in self._paused:
                link.greeted()

    def is_paused(self, link: Outlet) -> bool:
        """Is there more for it in the next turn?"""
        return link in self._paused

    def go_on_all(self) -> None:
        for link in list(self._waiting):
            self.go_on(link)

    def end(self, link: Outlet) -> None:
        self._waiting.pop(link, None)
        self._paused.pop(link, None)

    def _send(self, link: Outlet, greeting: _Greeting) -> bool:
        """False if the client has to take some of it first."""
        if greeting.is_stale:
            return True
        subscription = greeting.subscription
        session = subscription.session
        is_new = False
        limits = self._shared.limits
        delivery = Delivery.of(session, (subscription,))
        while True:
            if (
                not self._looks_left
                or link.congested
                or link.unsent > limits.backlog_bytes_max // 2
                or session.queued_bytes > limits.queue_bytes_max // 2
                or len(session.queue) + len(session.inflight) > limits.queue_messages_max // 2
            ):
                return False
            if greeting.messages is None:
                is_new = True
                # A copy, because the tree may change before the last one is sent.
                greeting.messages = iter(list(self._retained.match(subscription.filter)))
            message = next(greeting.messages, None)
            if message is None:
                return True
            if message.ordinal > greeting.ordinal:
                continue
            if message.expires_at is not None and message.expires_at <= self._shared.now:
                continue
            if not _is_wanted(subscription, message):
                self._looks_left -= 1
                continue
            if is_new or self._retained.get(message.topic) is message:
                self._shared.source = RETAINED_SOURCE
                self._dispatch.deliver(delivery, message, True, [])  # [MQTT3-3.3.1-8]
                self._shared.source = ""


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
