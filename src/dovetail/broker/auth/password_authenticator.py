"""Clients that prove their name by a password.

A name or a password in the CONNECT has to be right, so both are needed if one is there. A hash
takes tens of milliseconds, so it waits for its turn in the login queue (password_checker.py). A
pair that was right before needs no hash, and is answered at once.
"""

import asyncio

from dovetail.broker.auth.authenticator import Answer, Credentials, Decision, Grant, IsWanted
from dovetail.broker.auth.password_checker import Verifier
from dovetail.broker.auth.passwords import PasswordFile
from dovetail.errors import ReasonCode


class PasswordAuthenticator:
    """Decides by the password file as it was when it was loaded."""

    def __init__(self, passwords: PasswordFile, verifier: Verifier) -> None:
        self._passwords = passwords
        self._verifier = verifier

    def authenticate(
        self, credentials: Credentials, is_wanted: IsWanted
    ) -> "Answer | asyncio.Future[Answer]":
        user, password = credentials.user, credentials.password
        if not (user or password):
            return None
        if not (user and password):
            return ReasonCode.BAD_USER_NAME_OR_PASSWORD
        if self._passwords.remembers(user, password):
            return self._decide(user, password)
        return self._verifier.verify(
            user, credentials.host, lambda: self._decide(user, password), is_wanted
        )

    def _decide(self, user: str, password: bytes) -> Decision:
        if self._passwords.verify(user, password):
            return Grant(user)
        return ReasonCode.BAD_USER_NAME_OR_PASSWORD
