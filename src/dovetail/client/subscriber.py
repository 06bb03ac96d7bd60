"""`dovetail sub`: prints messages until a count, a time-out or Ctrl-C.

After a lost connection it reconnects, notes that on standard error, and subscribes again unless the
server still has the session. A message is acknowledged after it is printed: a persistent session
delivers it again if printing failed.
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
    ConnectionLostError,
    MqttConnection,
    RequestRefusedError,
    make_properties,
)
from dovetail.client.endpoint import MQTT_5, ConnectionOptions, check_text
from dovetail.client.message_format import Format, ReceivedMessage, render
from dovetail.errors import ClientError, ConfigError, DovetailError, WhereError
from dovetail.process.terminal import complain
from dovetail.topics.names import check_filter, split_shared

RETRY_SECONDS_MIN = 1.0
RETRY_SECONDS_MAX = 30.0
"""The pause between attempts to reconnect: it doubles each time, with jitter."""

SESSION_NEVER_EXPIRES = 0xFFFF_FFFF
"""MQTT 5.0 section 3.1.2.11.2. A persistent session of MQTT 3.1.1 never expires either."""

WHERE_PROPERTY = "where"
"""The user property of SUBSCRIBE that holds a where-clause."""


@dataclass(frozen=True, kw_only=True)
class SubscribeRequest:
    """The filters of the command, and the options that apply to all of them."""

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
                raise ConfigError(
                    f"--no-local does not go with {topic_filter}: it is a shared subscription."
                )
        options.require_mqtt_5(
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
        """Check the grammar. Only the server knows the spaces that the clause must fit."""
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
        paho_options = SubscribeOptions(
            qos=self.qos,
            noLocal=self.no_local,
            retainAsPublished=self.retain_as_published,
            retainHandling=SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE
            if self.retained
            else SubscribeOptions.RETAIN_DO_NOT_SEND,
        )
        return [(topic_filter, paho_options) for topic_filter in self.filters]

    def properties(self, version: str) -> Properties | None:
        if version != MQTT_5:
            return None
        return make_properties(
            PacketTypes.SUBSCRIBE,
            SubscriptionIdentifier=self.identifier,
            UserProperty=None if self.where is None else [(WHERE_PROPERTY, self.where)],
        )


def _check_filter(topic_filter: str) -> None:
    """Check a filter that may end with a where-clause; the server knows whether it may."""
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
    subscription: SubscribeRequest,
    *,
    keep_session: bool = False,
    count: int | None = None,
    timeout_seconds: float | None = None,
    format_: Format = Format.TEXT,
    verbose: bool = False,
) -> None:
    """Print messages until the count or the time-out is reached.

    An interrupt is the usual end, and no error unless there is a count.
    """
    options.check()
    subscription.check(options)
    if keep_session and options.client_id is None:
        raise ConfigError("--keep-session needs --client-id: the server finds a session by it.")
    if verbose and format_ in {Format.RAW, Format.JSON}:
        raise ConfigError(f"--verbose does not go with {format_}, which cannot show the topic.")
    output = _MessagePrinter(format_, verbose)
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


class _MessagePrinter:
    """Writes messages to standard output, one by one."""

    def __init__(self, format_: Format, verbose: bool) -> None:
        if sys.stdout is None:
            raise ConfigError("standard output is closed.")
        self._format = format_
        self._verbose = verbose
        self._terminal = sys.stdout.isatty()
        self.reader = _pipe_number()

    def write(self, message: MQTTMessage) -> None:
        received = ReceivedMessage.from_paho(message, time.time())
        sys.stdout.buffer.write(
            render(received, self._format, verbose=self._verbose, terminal=self._terminal)
        )
        sys.stdout.buffer.flush()


def _pipe_number() -> int | None:
    """Return the descriptor of standard output if it is a pipe, whose reader may leave."""
    try:
        number = sys.stdout.fileno()
        mode = os.fstat(number).st_mode
    except OSError:
        return None
    return number if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None


class _CountReachedError(Exception):
    """A message came after the last one of the count: it must not be acknowledged."""


class _Subscriber:
    def __init__(
        self,
        options: ConnectionOptions,
        subscription: SubscribeRequest,
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
        # One at a time, so that no message is half delivered when we leave a persistent session.
        is_one_by_one = keep_session and count is not None
        self._connection = MqttConnection(
            options, keep_session=keep_session, receive_max=1 if is_one_by_one else None
        )
        self._connection.on_message = self._on_message

    def run(self) -> None:
        self._connection.open()
        try:
            self._subscribe()
            while not self._finished():
                self._pump()
        except _CountReachedError:
            pass

    def _pump(self) -> None:
        try:
            self._connection.pump(self._left(), reader=self._reader)
        except ConnectionLostError as error:
            if not error.is_transient:
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
        """Retry until the connection is open again or the time is up."""
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
            except (ConnectionLostError, RequestRefusedError) as error:
                if not error.is_transient:
                    raise
            else:
                _note(f"connected to {self._connection.address} again.")
                return

    def _on_message(self, message: MQTTMessage) -> None:
        if self._count is not None and self._shown >= self._count:
            raise _CountReachedError
        self._show(message)
        self._shown += 1


def _note(text: str) -> None:
    complain(f"dovetail: {text}")
