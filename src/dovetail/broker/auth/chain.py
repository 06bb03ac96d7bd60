"""The authenticators of a broker in their order: the first that knows the credentials decides.

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
    IsWanted,
)
from dovetail.broker.auth.certificate_authenticator import CertificateAuthenticator
from dovetail.broker.auth.password_authenticator import PasswordAuthenticator
from dovetail.broker.auth.password_checker import Verifier
from dovetail.broker.auth.passwords import PasswordFile
from dovetail.errors import ReasonCode
from dovetail.settings import Access


class AuthenticatorChain:
    """Asks one authenticator after the other. It refuses credentials that none of them knows."""

    def __init__(self, authenticators: Iterable[Authenticator]) -> None:
        self._authenticators = tuple(authenticators)

    def authenticate(
        self, credentials: Credentials, is_wanted: IsWanted = lambda: True
    ) -> "Decision | asyncio.Future[Decision]":
        """Return the decision at once if no authenticator has to wait, else a future of it."""
        return _ask(iter(self._authenticators), credentials, is_wanted)


def _ask(
    authenticators: Iterator[Authenticator], credentials: Credentials, is_wanted: IsWanted
) -> "Decision | asyncio.Future[Decision]":
    for one in authenticators:
        answer = one.authenticate(credentials, is_wanted)
        if isinstance(answer, asyncio.Future):
            return _ask_later(answer, authenticators, credentials, is_wanted)
        if answer is not None:
            return answer
    return ReasonCode.NOT_AUTHORIZED


def _ask_later(
    answering: "asyncio.Future[Answer]",
    others: Iterator[Authenticator],
    credentials: Credentials,
    is_wanted: IsWanted,
) -> "asyncio.Future[Decision]":
    """Return what `answering` decides, or the `others` after it."""
    decision: asyncio.Future[Decision] = answering.get_loop().create_future()

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
        found = _ask(others, credentials, is_wanted) if answer is None else answer
        if isinstance(found, asyncio.Future):
            found.add_done_callback(settle)
        elif not decision.done():
            decision.set_result(found)

    answering.add_done_callback(answered)
    return decision


def load_passwords(access: Access) -> PasswordFile | None:
    """Return the content of `access.password_file`; None where the settings name no file."""
    return PasswordFile.load(Path(access.password_file)) if access.password_file else None


def make_chain(
    access: Access, passwords: PasswordFile | None, verifier: Verifier
) -> AuthenticatorChain:
    """Return the chain that the settings ask for.

    Without a password file nobody can prove a name: a client that gives one is anonymous.
    """
    chain: list[Authenticator] = [CertificateAuthenticator()]
    if passwords is not None:
        chain.append(PasswordAuthenticator(passwords, verifier))
    chain.append(AnonymousAuthenticator(access.anonymous))
    return AuthenticatorChain(chain)
