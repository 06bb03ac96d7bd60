"""Sends the retained messages of a new subscription at the pace of the client. Pure.

There may be a million of them. The broker sends as many as the client's backlog and queue have room
for, and the rest when there is room again. It leaves out a message that was replaced meanwhile: the
client has got the newer one as a publication.

The broker keeps one position per subscription, not a list of messages, so memory is bounded by the
number of subscriptions. It looks messages up when their turn comes, one subscription at a time.

A fast client, or a filter or clause that matches few messages, sets no bound to the work. So the
work is done in slices (slices.py).
"""

from collections import OrderedDict
from collections.abc import Iterator

from dovetail.broker.client_link import ClientLink
from dovetail.broker.delivery import Delivery
from dovetail.broker.limits import RETAINED_LOOKS_PER_PIECE
from dovetail.broker.local_delivery import LocalDelivery
from dovetail.broker.publication_point import point_of
from dovetail.broker.retained import RetainedMessages
from dovetail.broker.shared_state import RETAINED_SOURCE, SharedState
from dovetail.broker.subscription import Subscription
from dovetail.errors import ClientError
from dovetail.messages import Message
from dovetail.slices import SliceScheduler, Work

_STALE_MIN = 100


class _RetainedDelivery:
    """The retained delivery of one subscription: messages up to `ordinal`."""

    __slots__ = ("has_ended", "messages", "ordinal", "subscription")

    def __init__(self, subscription: Subscription, ordinal: int) -> None:
        self.subscription = subscription
        self.ordinal = ordinal
        self.messages: Iterator[Message | None] | None = None
        self.has_ended = False

    @property
    def is_stale(self) -> bool:
        subscription = self.subscription
        return subscription.session.subscriptions.get(subscription.key) is not subscription


class RetainedDeliveries:
    """The retained deliveries under way, by connection."""

    def __init__(
        self,
        shared: SharedState,
        slices: SliceScheduler,
        retained: RetainedMessages,
        local: LocalDelivery,
    ) -> None:
        self._shared = shared
        self._slices = slices
        self._retained = retained
        self._local = local
        self._waiting: dict[ClientLink, OrderedDict[str, _RetainedDelivery]] = {}
        self._congestion_bytes = shared.limits.backlog_bytes_max // 2
        self._sending: dict[ClientLink, None] = {}  # links whose slices are under way

    def begin(self, link: ClientLink, subscription: Subscription) -> None:
        """Add the retained delivery of a subscription. `resume` sends it."""
        if not self._retained.may_match(subscription.filter):
            return
        pending = _RetainedDelivery(subscription, self._retained.ordinal)
        waiting = self._waiting.setdefault(link, OrderedDict())
        # A client that subscribes again before the end gets all of them again.
        waiting[subscription.key] = pending
        if len(waiting) > _STALE_MIN:
            # Checking two for each new one keeps the number of stale ones small.
            for _ in range(2):
                key, oldest = waiting.popitem(last=False)
                if not oldest.is_stale:
                    waiting[key] = oldest

    def resume(self, link: ClientLink) -> None:
        """Continue with a link that may have room again."""
        if link in self._waiting and link not in self._sending:
            self._sending[link] = None
            self._slices.begin(self._send(link))

    def is_sending(self, link: ClientLink) -> bool:
        """Is a slice for this link under way?"""
        return link in self._sending

    def resume_all(self) -> None:
        for link in self._waiting:
            if link not in self._sending:
                self._sending[link] = None
                self._slices.defer(self._send(link))

    def end(self, link: ClientLink) -> None:
        self._waiting.pop(link, None)

    def _send(self, link: ClientLink) -> Work:
        """Send as much as the client has room for now."""
        try:
            looks_left = RETAINED_LOOKS_PER_PIECE
            while waiting := self._waiting.get(link):
                if not looks_left:
                    yield
                    looks_left = RETAINED_LOOKS_PER_PIECE
                    continue
                pending = next(iter(waiting.values()))
                if pending.is_stale:
                    looks_left -= 1
                    pending.has_ended = True
                elif not self._has_room(link, pending):
                    return
                else:
                    looks_left -= self._send_some(link, pending, looks_left)
                if pending.has_ended:
                    waiting.popitem(last=False)
            self._waiting.pop(link, None)
        finally:
            self._sending.pop(link, None)
            link.retained_delivery_paused()

    def _has_room(self, link: ClientLink, pending: _RetainedDelivery) -> bool:
        """Do the client's backlog and queue have room for more?"""
        if link.congested or link.unsent > self._congestion_bytes:
            return False
        session = pending.subscription.session
        if not pending.subscription.qos and not session.is_handle:
            return True  # its queue gets nothing of them
        limits = self._shared.limits
        return not (
            session.queue.nbytes > limits.queue_bytes_max // 2
            or session.pending > limits.queue_messages_max // 2
        )

    def _send_some(self, link: ClientLink, pending: _RetainedDelivery, looks_max: int) -> int:
        """Take steps of the walk, and send the wanted messages while there is room.

        Return the number of steps.
        """
        subscription = pending.subscription
        if pending.messages is None:
            pending.messages = self._retained.walk(subscription.filter)
        delivery = Delivery.of(subscription.session, (subscription,))
        deliver = self._local.deliver
        shared = self._shared
        looks = 0
        shared.source = RETAINED_SOURCE
        for message in pending.messages:
            looks += 1
            if (
                message is not None
                and message.ordinal <= pending.ordinal
                and (message.expires_at is None or message.expires_at > shared.now)
                and _is_wanted(subscription, message)
            ):
                deliver(delivery, message, True, [])  # [MQTT3-3.3.1-8]
                if not self._has_room(link, pending):
                    break
            if looks == looks_max:
                break
        else:
            looks += 1
            pending.has_ended = True
        shared.source = ""
        return looks


def _is_wanted(subscription: Subscription, message: Message) -> bool:
    """Do No Local and the where-clause of the subscription let the message pass?"""
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
