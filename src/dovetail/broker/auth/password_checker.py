"""Checks passwords one after the other in a thread, in the order of the login queue.

This module has the thread, the loop's clock and the file of known logins. The rules are in
login_queue.py and known_logins.py.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dovetail.broker.auth.authenticator import Answer, Decision, Grant
from dovetail.broker.auth.known_logins import RECORD_BYTES, KnownLogins, LoginFile
from dovetail.broker.auth.login_queue import FailedLogins, Lane, LoginQueue
from dovetail.broker.limits import KNOWN_LOGINS_MAX, LOGIN_LANES_MAX, LOGINS_WAITING_MAX
from dovetail.cluster.addresses import network_of
from dovetail.cluster.dialer import RefusalLog
from dovetail.cluster.limits import LOGGED_REFUSAL_SECONDS, LOGGED_REFUSALS_MAX
from dovetail.errors import ReasonCode

log = logging.getLogger("dovetail.broker")

REFUSALS: Mapping[ReasonCode, str] = {
    ReasonCode.CONNECTION_RATE_EXCEEDED: "too many wrong passwords came from this address",
    ReasonCode.SERVER_BUSY: "too many clients are logging in at once",
}
"""The reasons to refuse a login without checking its password."""


class _Login(NamedTuple):
    decide: Callable[[], Decision]
    is_waiting: Callable[[], bool]
    decision: "asyncio.Future[Answer]"


class PasswordChecker:
    """Checks the passwords of one broker's clients."""

    def __init__(self, file: Path, failures_per_minute_max: int) -> None:
        """Read the `file` of known logins. This blocks."""
        self._loop = asyncio.get_running_loop()
        self._file = LoginFile(file)
        data = self._file.read()
        self._known = KnownLogins(data, KNOWN_LOGINS_MAX)
        self._written = len(self._known)
        """The number of records in the file."""
        if len(data) != RECORD_BYTES * self._written:
            self._file.replace(self._known.records())
        self._queue: LoginQueue[_Login] = LoginQueue(
            LOGINS_WAITING_MAX, FailedLogins(failures_per_minute_max, LOGIN_LANES_MAX)
        )
        self._thread = ThreadPoolExecutor(1, "passwords")
        self._is_checking = False
        self._is_stopped = False
        self._refusal_log = RefusalLog(LOGGED_REFUSALS_MAX, LOGGED_REFUSAL_SECONDS)

    def limit(self, failures_per_minute_max: int) -> None:
        """Use another limit from now on. Earlier failures are forgiven."""
        self._queue.failures = FailedLogins(failures_per_minute_max, LOGIN_LANES_MAX)

    def stop(self) -> None:
        """Stop. Logins that wait get no answer any more."""
        self._is_stopped = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    def check(
        self,
        user: str,
        host: str,
        decide: Callable[[], Decision],
        is_waiting: Callable[[], bool] = lambda: True,
    ) -> "asyncio.Future[Answer]":
        """Call `decide` in a thread when it is the user's turn, and return its answer.

        The answer is a reason code if the queue refuses the login. If `is_waiting` says that nobody
        waits any more, the future is cancelled.
        """
        network = network_of(host)
        lane = Lane(network, user if self._known.knows(user, network) else None)
        login = _Login(decide, is_waiting, self._loop.create_future())
        refused = self._queue.offer(login, lane, self._loop.time())
        if refused is not None:
            _answer(*refused)
        self._go_on()
        return login.decision

    def remember(self, user: str, host: str) -> None:
        """Note that this user has logged in from this address."""
        record = self._known.add(user, network_of(host))
        if not record or self._is_stopped:
            return
        self._written += 1
        if self._written <= 2 * KNOWN_LOGINS_MAX and not self._file.is_failing:
            self._thread.submit(self._file.append, record)
        else:
            self._written = len(self._known)
            self._thread.submit(self._file.replace, self._known.records())

    def _go_on(self) -> None:
        while not (self._is_checking or self._is_stopped):
            found = self._queue.take()
            if found is None:
                return
            login, lane = found
            if not login.is_waiting():
                login.decision.cancel()
                continue
            self._is_checking = True
            checking = self._loop.run_in_executor(self._thread, login.decide)
            checking.add_done_callback(partial(self._checked, login, lane))

    def _checked(self, login: _Login, lane: Lane, checking: "asyncio.Future[Decision]") -> None:
        self._is_checking = False
        if checking.cancelled():  # we stop
            login.decision.cancel()
            return
        decision = checking.result()
        is_correct = isinstance(decision, Grant)
        lost = self._queue.settle(lane, self._loop.time(), is_correct=is_correct)
        for other in lost:
            _answer(other, ReasonCode.CONNECTION_RATE_EXCEEDED)
        if not is_correct and self._queue.failures.is_throttled(lane, self._loop.time()):
            self._log_throttled(lane)
        _answer(login, decision)
        self._go_on()

    def _log_throttled(self, lane: Lane) -> None:
        who = "" if lane.user is None else f" as {lane.user!r}"
        what = f"logins from {lane.network}{who} are refused for a while: too many wrong passwords"
        if self._refusal_log.is_news(lane.network, what, self._loop.time()):
            log.warning("%s", what)


def _answer(login: _Login, decision: Decision) -> None:
    if not login.decision.done():
        login.decision.set_result(decision)
