"""Requests for handles at a broker without sockets: each opens a mailbox and closes it at once."""

from dovetail.api.handles import PolledMessage
from dovetail.broker.client_wire import RemoteEnd
from dovetail.broker.mailbox import Handle, Mailbox, new_handle
from dovetail.broker.session import Session
from dovetail.codec.packets import Subscribe, SubscriptionRequest
from support.brokers.harness import World

FIRST_ID = 500


def begin(world: World, *, is_shut: bool = False) -> Mailbox:
    return Mailbox(
        world.broker,
        RemoteEnd("test"),
        world.now,
        first_id=FIRST_ID,
        changed=lambda: None,
        is_shut=is_shut,
    )


def subscribe(
    world: World,
    *filters: str,
    user: str | None = None,
    expiry_seconds: int = 100,
    random: bytes = bytes(16),
    where: str | None = None,
) -> tuple[Handle, list[int] | None]:
    """Return a new handle, and the reason code of each filter."""
    handle = new_handle(random, user, expiry_seconds)
    mailbox = begin(world)
    mailbox.open(handle, user, 0, is_new=True)
    world.settle()
    requests = [SubscriptionRequest(topic_filter, qos=1) for topic_filter in filters]
    properties = () if where is None else (("where", where),)
    packet = Subscribe(1, requests, user_properties=properties)
    world.broker.slices.begin(world.broker.subscribe(mailbox, packet))
    world.settle()
    close(world, mailbox)
    return handle, mailbox.reasons


def close(world: World, mailbox: Mailbox) -> None:
    mailbox.close(with_will=False)
    world.settle()


def waiting(world: World, handle: Handle, window: int = 100, user: str | None = None) -> Mailbox:
    """Return the open mailbox of a poll that waits."""
    mailbox = begin(world)
    mailbox.open(handle, user, window)
    world.settle()
    return mailbox


def poll(
    world: World, handle: Handle, window: int = 100, user: str | None = None
) -> list[PolledMessage]:
    mailbox = waiting(world, handle, window, user)
    if mailbox.error is not None:
        raise mailbox.error
    close(world, mailbox)
    return mailbox.messages


def payloads(world: World, handle: Handle, window: int = 100) -> list[str]:
    return [message.payload for message in poll(world, handle, window)]


def acknowledge(world: World, handle: Handle, *ids: int) -> list[bool]:
    mailbox = begin(world, is_shut=True)
    mailbox.open(handle, None, 1)
    world.settle()
    found = [session_of(world, handle).handle_puback(one, world.now) for one in ids]
    close(world, mailbox)
    assert mailbox.messages == []
    return found


def session_of(world: World, handle: Handle) -> Session:
    return world.broker.sessions[handle.client_id]
