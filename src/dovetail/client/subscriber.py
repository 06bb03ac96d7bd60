"""`dovetail sub`: prints messages until it has enough, its time is up, or somebody ends it.

A connection that was lost is made again, with a line on standard error, and the subscriptions with
it unless the server still has the session. A message is acknowledged when it is printed: what could
not be printed, a session that is kept delivers again.
"""

import math
import os
import random
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from dovetail.attributes.filter_query import split_query
from dovetail.attributes.grammar import parse
from dovetail.client.connection import (
    ConnectError,
    Connection,
    LostError,
    RefusedError,
    make_properties,
)
from dovetail.client.endpoint import MQTT_5, ConnectionOptions, check_text
from dovetail.client.message_format import Format, Received, render
from dovetail.errors import ClientError, ConfigError, DovetailError, WhereError
from dovetail.process.terminal import complain
from dovetail.topics.names import check_filter, split_shared

RETRY_SECONDS_MIN = 1.0
RETRY_SECONDS_MAX = 30.0
"""Between attempts to connect again: doubled each time, and shaken lest clients come in step."""

SESSION_NEVER_EXPIRES = 0xFFFF_FFFF
"""MQTT 5.0 section 3.1.2.11.2. What a kept session of MQTT 3.1.1 is."""

WHERE_PROPERTY = "where"
"""The user property of SUBSCRIBE that is a where-clause."""


@dataclass(frozen=True, kw_only=True)
class Subscription:
    """What is asked for, the same for all filters."""

    filters: tuple[str, ...]
    where: str | None = None
    qos: int = 0
    retained: bool = True
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int | None = None

    def check(self, options: ConnectionOptions) -> None:
        for topic_filter in self.filters:
            _check_filter(topic_filter)
            if self.no_local and split_shared(topic_filter) is not None:  # [MQTT-3.8.3-4]
                raise ConfigError(f"--no-local does not go with {topic_filter}: it is shared.")
        options.need_mqtt_5(
            {
                "--no-local": self.no_local,
                "--no-retained": not self.retained,
                "--retain-as-published": self.retain_as_published,
                "--identifier": self.identifier,
            }
        )
        if self.where is not None:
            self._check_where(self.where, options)

    def _check_where(self, where: str, options: ConnectionOptions) -> None:
        """What a space makes of it the server knows; what no space could, we."""
        if options.version != MQTT_5:
            raise ConfigError(
                f"--where needs MQTT 5, and this is MQTT {options.version}.",
                hint="There the clause stands behind the topic filter, as in "
                "'sensor/+/temperature?location=roomA&value>25'.",
            )
        try:
            parse(where)
        except WhereError as error:
            raise ConfigError(error.message, hint=error.hint) from None
        check_text("--where", where)

    def requests(self, version: str) -> list[tuple[str, Any]]:
        if version != MQTT_5:
            return [(topic_filter, self.qos) for topic_filter in self.filters]
        wanted = SubscribeOptions(
            qos=self.qos,
            noLocal=self.no_local,
            retainAsPublished=self.retain_as_published,
            retainHandling=SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE
            if self.retained
            else SubscribeOptions.RETAIN_DO_NOT_SEND,
        )
        return [(topic_filter, wanted) for topic_filter in self.filters]

    def properties(self, version: str) -> Properties | None:
        if version != MQTT_5:
            return None
        return make_properties(
            PacketTypes.SUBSCRIBE,
            SubscriptionIdentifier=self.identifier,
            UserProperty=None if self.where is None else [(WHERE_PROPERTY, self.where)],
        )


def _check_filter(topic_filter: str) -> None:
    """A filter, or one with a where-clause behind it: the server knows where that may be."""
    plain, query = split_query(topic_filter)
    for candidate in (topic_filter,) if query is None else (topic_filter, plain):
        try:
            check_filter(candidate)
        except ClientError as error:
            fault = error
        else:
            return
    raise ConfigError(f"cannot subscribe: {fault.message}.")


def subscribe(
    options: ConnectionOptions,
    subscription: Subscription,
    *,
    keep_session: bool = False,
    count: int | None = None,
    timeout_seconds: float | None = None,
    how: Format = Format.TEXT,
    verbose: bool = False,
) -> None:
    """Print messages until there is no more to do.

    An interrupt is the usual end of it, and no error unless there is a count to reach.
    """
    options.check()
    subscription.check(options)
    if keep_session and options.client_id is None:
        raise ConfigError("--keep-session needs --client-id: the server finds a session by it.")
    if verbose and how in {Format.RAW, Format.JSON}:
        raise ConfigError(f"--verbose does not go with {how}: there is no place for a topic.")
    output = _Output(how, verbose)
    subscriber = _Subscriber(
        options, subscription, keep_session, count, timeout_seconds, output.write, output.reader
    )
    try:
        subscriber.run()
    except KeyboardInterrupt:
        if count is not None:
            raise
    finally:
        subscriber.close()


class _Output:
    """Standard output, message by message."""

    def __init__(self, how: Format, verbose: bool) -> None:
        if sys.stdout is None:
            raise ConfigError("standard output is closed.")
        self._how = how
        self._verbose = verbose
        self._terminal = sys.stdout.isatty()
        self.reader = _pipe_number()

    def write(self, message: MQTTMessage) -> None:
        received = Received.of(message, time.time())
        sys.stdout.buffer.write(
            render(received, self._how, verbose=self._verbose, terminal=self._terminal)
        )
        sys.stdout.buffer.flush()


def _pipe_number() -> int | None:
    """Standard output, if it is a pipe that its reader may close."""
    try:
        number = sys.stdout.fileno()
        mode = os.fstat(number).st_mode
    except OSError:
        return None
    return number if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None


class _EnoughError(Exception):
    """A message came after the last that was wanted: it is not ours to acknowledge."""


class _Subscriber:
    def __init__(
        self,
        options: ConnectionOptions,
        subscription: Subscription,
        keep_session: bool,
        count: int | None,
        timeout_seconds: float | None,
        show: Callable[[MQTTMessage], None],
        reader: int | None,
    ) -> None:
        if keep_session and options.version == MQTT_5 and options.session_expiry_seconds is None:
            options = replace(options, session_expiry_seconds=SESSION_NEVER_EXPIRES)
        self._options = options
        self._subscription = subscription
        self._count = count
        self._timeout_seconds = timeout_seconds
        self._deadline = math.inf if timeout_seconds is None else time.monotonic() + timeout_seconds
        self._show = show
        self._reader = reader
        self._shown = 0
        # One at a time, so that none is half delivered when we leave a session that goes on.
        one_by_one = keep_session and count is not None
        self._connection = Connection(
            options, keep_session=keep_session, receive_max=1 if one_by_one else None
        )
        self._connection.on_message = self._on_message

    def run(self) -> None:
        self._connection.open()
        try:
            self._subscribe()
            while not self._finished():
                self._pump()
        except _EnoughError:
            pass

    def _pump(self) -> None:
        try:
            self._connection.pump(self._left(), reader=self._reader)
        except LostError as error:
            if not error.passing:
                raise
            _note(f"{error.message} Connecting again.")
            self._reopen()

    def close(self) -> None:
        self._connection.close()

    def _finished(self) -> bool:
        if self._count is not None and self._shown >= self._count:
            return True
        if self._left() > 0:
            return False
        if self._count is not None:
            raise DovetailError(
                f"{self._shown:,} of {self._count:,} messages came in {self._timeout_seconds:g} "
                "seconds."
            )
        return True

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _subscribe(self) -> None:
        version = self._options.version
        granted = self._connection.subscribe(
            self._subscription.requests(version), self._subscription.properties(version)
        )
        for topic_filter, qos in zip(self._subscription.filters, granted, strict=False):
            if qos < self._subscription.qos:
                _note(f"{self._connection.address} grants {topic_filter} QoS {qos} only.")

    def _reopen(self) -> None:
        """Until there is a connection again, or no time left."""
        pause_seconds = RETRY_SECONDS_MIN
        while self._left() > 0:
            time.sleep(min(pause_seconds * random.uniform(0.5, 1.0), self._left()))
            pause_seconds = min(2 * pause_seconds, RETRY_SECONDS_MAX)
            try:
                self._connection.open()
                if not self._connection.session_present:
                    self._subscribe()
            except ConnectError:
                continue
            except (LostError, RefusedError) as error:
                if not error.passing:
                    raise
            else:
                _note(f"connected to {self._connection.address} again.")
                return

    def _on_message(self, message: MQTTMessage) -> None:
        if self._count is not None and self._shown >= self._count:
            raise _EnoughError
        self._show(message)
        self._shown += 1


def _note(text: str) -> None:
    complain(f"dovetail: {text}")
