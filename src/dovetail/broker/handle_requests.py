"""Requests for handles on a running broker: each opens a mailbox, waits, and closes it.

- An answer waits for the disk. So a polled message keeps its id through a restart, and an
  acknowledged one does not come again. If the disk fails, the answer is 503 and nothing is lost.
- A poll takes its handle over from a poll that waits, which ends with an error. `acknowledge` and
  `describe` use the mailbox that is open.
- Waiting polls are bounded (`http.polls_max`), and so are the messages and bytes of an answer.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from dovetail.api.handles import (
    AcknowledgeResult,
    HandleDefinition,
    HandleReport,
    HandleSubscription,
    PollQuery,
    PollResult,
)
from dovetail.attributes.clauses import check_requested_filter, split_key
from dovetail.broker.client_wire import RemoteEnd
from dovetail.broker.limits import HOLD_SECONDS_MAX
from dovetail.broker.mailbox import RANDOM_BYTES, Handle, Mailbox, new_handle, parse_handle
from dovetail.broker.net.server import NOT_STORED, BrokerServer
from dovetail.broker.session import Session
from dovetail.broker.session_sender import PACKET_ID_MAX
from dovetail.broker.subscribe import WHERE
from dovetail.codec.packets import Subscribe, SubscriptionRequest
from dovetail.errors import ClientError, ReasonCode

_FAILURE = 0x80  # reason codes from here on are refusals


class HandleRequests:
    """Implements `HandleService` (api/handles.py)."""

    def __init__(self, server: BrokerServer, polls_max: int) -> None:
        self._server = server
        self._polls_max = polls_max
        self._polls = 0
        self._has_stopped = False

    def stop(self) -> None:
        """Refuse further requests. The broker itself ends the polls that wait."""
        self._has_stopped = True

    # Requests -----------------------------------------------------------------------------------

    async def subscribe(self, user: str | None, definition: HandleDefinition) -> HandleReport:
        filters = tuple(dict.fromkeys(definition.filters))
        for topic_filter in filters:
            check_requested_filter(topic_filter)
        where = () if definition.where is None else ((WHERE, definition.where),)
        limit = self._server.shared.limits.session_expiry_max_seconds
        if not limit:
            raise ClientError(
                ReasonCode.QUOTA_EXCEEDED,
                "no session outlives its connection here (mqtt.session_expiry_max_seconds is 0)",
            )
        expiry_seconds = min(definition.expiry_seconds, limit)
        handle = new_handle(secrets.token_bytes(RANDOM_BYTES), user, expiry_seconds)
        async with self._open(handle, user, window=0, is_new=True) as request:
            mailbox = request.mailbox
            try:
                requests = [SubscriptionRequest(topic_filter, qos=1) for topic_filter in filters]
                broker = self._server.broker
                packet = Subscribe(1, requests, user_properties=where)
                broker.slices.begin(broker.subscribe(mailbox, packet))
                self._server.schedule_commit()
                await request.until(lambda: mailbox.reasons is not None)
                _check(mailbox)
                # Closing the mailbox would end the delivery of retained messages.
                deliveries = broker.retained_deliveries
                await request.until(lambda: not deliveries.is_sending(mailbox))
            except BaseException:
                self._end_session(mailbox)
                raise
            return _subscription(handle, _session_of(mailbox))

    async def describe(self, user: str | None, handle: str) -> HandleReport:
        found = self._find(handle, user)
        async with self._session(found, user) as session:
            return _subscription(found, session)

    async def poll(self, user: str | None, handle: str, query: PollQuery) -> PollResult:
        found = self._find(handle, user)
        if self._polls >= self._polls_max:
            raise ClientError(
                ReasonCode.SERVER_BUSY,
                f"{self._polls_max:,} polls wait already, as many as may (http.polls_max)",
            )
        self._polls += 1
        try:
            async with self._open(found, user, window=query.max) as request:
                return await self._poll(request, query.wait)
        finally:
            self._polls -= 1

    async def _poll(self, request: "_MailboxRequest", wait_seconds: float) -> PollResult:
        mailbox = request.mailbox
        redirect = _session_of(mailbox).redirect
        if redirect is not None and redirect.holds:
            # Another broker is still sending the queue of this session.
            wait_seconds = max(wait_seconds, HOLD_SECONDS_MAX)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                await request.until(lambda: bool(mailbox.messages))
        mailbox.shut()
        if mailbox.messages:
            await self._server.wait_until_stored()
        return PollResult(tuple(mailbox.messages))

    async def acknowledge(
        self, user: str | None, handle: str, ids: tuple[int, ...]
    ) -> AcknowledgeResult:
        found = self._find(handle, user)
        async with self._session(found, user) as session:
            now = self._server.shared.now
            known = tuple(one for one in dict.fromkeys(ids) if session.handle_puback(one, now))
        if known:
            await self._server.wait_until_stored()
        gone = frozenset(known)
        unknown = tuple(one for one in dict.fromkeys(ids) if one not in gone)
        return AcknowledgeResult(known, unknown)

    async def unsubscribe(self, user: str | None, handle: str) -> None:
        async with self._open(self._find(handle, user), user) as request:
            self._end_session(request.mailbox)
        await self._server.wait_until_stored()

    # Mailboxes ----------------------------------------------------------------------------------

    @staticmethod
    def _find(handle: str, user: str | None) -> Handle:
        found = parse_handle(handle, user)
        if found is None:
            raise _no_such_handle()
        return found

    @asynccontextmanager
    async def _session(self, handle: Handle, user: str | None) -> AsyncIterator[Session]:
        """Yield the handle's session, without taking it over from a poll that waits."""
        session = self._server.broker.sessions.get(handle.client_id)
        if session is not None and isinstance(session.link, Mailbox):
            self._server.update_clock()
            yield session
            self._server.schedule_commit()
        else:
            async with self._open(handle, user) as request:
                yield _session_of(request.mailbox)

    @asynccontextmanager
    async def _open(
        self, handle: Handle, user: str | None, *, window: int | None = None, is_new: bool = False
    ) -> AsyncIterator["_MailboxRequest"]:
        """Yield a request whose mailbox was admitted. Without a `window` it is shut."""
        if self._has_stopped:
            raise ClientError(ReasonCode.SERVER_SHUTTING_DOWN, "the broker stops")
        server = self._server
        server.update_clock()
        request = _MailboxRequest(server, is_shut=window is None)
        try:
            request.mailbox.open(handle, user, 1 if window is None else window, is_new=is_new)
            server.schedule_commit()
            await request.until(lambda: request.mailbox.is_connected)
            server.update_clock()
            yield request
        finally:
            server.update_clock()
            request.mailbox.close(with_will=False)
            server.schedule_commit()

    def _end_session(self, mailbox: Mailbox) -> None:
        self._server.update_clock()
        if mailbox.is_connected:
            mailbox.end_session()
            self._server.schedule_commit()


class _MailboxRequest:
    """A mailbox, and an event to wait for its changes."""

    def __init__(self, server: BrokerServer, *, is_shut: bool) -> None:
        self._changed = asyncio.Event()
        self.mailbox = Mailbox(
            server.broker,
            RemoteEnd("HTTP"),
            server.shared.now,
            first_id=secrets.randbelow(PACKET_ID_MAX) + 1,
            changed=self._changed.set,
            is_shut=is_shut,
        )

    async def until(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready()`, or raise ClientError if the mailbox closes first."""
        while not ready():
            error = self.mailbox.error
            if error is not None:
                is_unknown = error.reason == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
                raise _no_such_handle() if is_unknown else error
            self._changed.clear()
            await self._changed.wait()


def _no_such_handle() -> ClientError:
    """Return the error for a handle that never existed, has gone, or has another owner."""
    return ClientError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "there is no such handle")


def _session_of(mailbox: Mailbox) -> Session:
    session = mailbox.session
    assert session is not None
    return session


def _subscription(handle: Handle, session: Session) -> HandleReport:
    return HandleReport(
        handle.text,
        tuple(HandleSubscription(*split_key(key)) for key in session.subscriptions),
        session.expiry_seconds,
        session.pending,
    )


def _check(mailbox: Mailbox) -> None:
    """Raise ClientError for the first filter that was refused."""
    for reason in mailbox.reasons or ():
        if reason >= _FAILURE:
            raise ClientError(ReasonCode(reason), mailbox.why or NOT_STORED)
