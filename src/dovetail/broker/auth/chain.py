"""The chain of authenticators: the first one that knows the credentials decides.

The order is: certificates, passwords, anonymous clients. A certificate therefore names its client,
whatever the CONNECT says.
"""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path

from dovetail.broker.auth.anonymous_authenticator import AnonymousAuthenticator
from dovetail.broker.auth.authenticator import (
    Answer,
    Authenticator,
    Credentials,
    Decision,
    IsWaiting,
)
from dovetail.broker.auth.certificate_authenticator import CertificateAuthenticator
from dovetail.broker.auth.password_authenticator import PasswordAuthenticator
from dovetail.broker.auth.password_checker import PasswordChecker
from dovetail.broker.auth.passwords import PasswordFile
from dovetail.errors import ReasonCode
from dovetail.settings import AccessSettings


class AuthenticatorChain:
    """Asks one authenticator after the other. It refuses credentials that none of them knows."""

    def __init__(self, authenticators: Iterable[Authenticator]) -> None:
        self._authenticators = tuple(authenticators)

    def authenticate(
        self, credentials: Credentials, is_waiting: IsWaiting = lambda: True
    ) -> "Decision | asyncio.Future[Decision]":
        """Return the decision at once if no authenticator has to wait, else a future of it."""
        return _ask(iter(self._authenticators), credentials, is_waiting)


def _ask(
    authenticators: Iterator[Authenticator], credentials: Credentials, is_waiting: IsWaiting
) -> "Decision | asyncio.Future[Decision]":
    for one in authenticators:
        answer = one.authenticate(credentials, is_waiting)
        if isinstance(answer, asyncio.Future):
            return _ask_later(answer, authenticators, credentials, is_waiting)
        if answer is not None:
            return answer
    return ReasonCode.NOT_AUTHORIZED


def _ask_later(
    first_answer: "asyncio.Future[Answer]",
    others: Iterator[Authenticator],
    credentials: Credentials,
    is_waiting: IsWaiting,
) -> "asyncio.Future[Decision]":
    """Return the decision of `first_answer`, or of the `others` if it has none."""
    decision: asyncio.Future[Decision] = first_answer.get_loop().create_future()

    def settle(done: "asyncio.Future[Decision]") -> None:
        if decision.done():  # the caller has gone
            return
        if done.cancelled():
            decision.cancel()
        elif (error := done.exception()) is not None:
            decision.set_exception(error)
        else:
            decision.set_result(done.result())

    def answered(done: "asyncio.Future[Answer]") -> None:
        if done.cancelled() or done.exception() is not None:
            settle(done)  # type: ignore[arg-type]
            return
        answer = done.result()
        found = _ask(others, credentials, is_waiting) if answer is None else answer
        if isinstance(found, asyncio.Future):
            found.add_done_callback(settle)
        elif not decision.done():
            decision.set_result(found)

    first_answer.add_done_callback(answered)
    return decision


def load_passwords(access: AccessSettings) -> PasswordFile | None:
    """Return the password file of the settings, or None if they name none."""
    return PasswordFile.load(Path(access.password_file)) if access.password_file else None


def make_chain(
    access: AccessSettings, passwords: PasswordFile | None, checker: PasswordChecker
) -> AuthenticatorChain:
    """Return the chain of authenticators for these settings.

    Without a password file nobody can prove a name, so a client that gives one is anonymous.
    """
    chain: list[Authenticator] = [CertificateAuthenticator()]
    if passwords is not None:
        chain.append(PasswordAuthenticator(passwords, checker))
    chain.append(AnonymousAuthenticator(access.anonymous))
    return AuthenticatorChain(chain)
