"""Authenticates clients by their name and password.

If a CONNECT has a name or a password, it needs both, and they have to be right. Hashing takes tens
of milliseconds, so a login waits for its turn in the login queue (password_checker.py). A pair that
was right before needs no hash, and is answered at once.
"""

import asyncio

from dovetail.broker.auth.authenticator import Answer, Credentials, Decision, Grant, IsWaiting
from dovetail.broker.auth.password_checker import PasswordChecker
from dovetail.broker.auth.passwords import PasswordFile
from dovetail.errors import ReasonCode


class PasswordAuthenticator:
    """Decides by one loaded password file."""

    def __init__(self, passwords: PasswordFile, checker: PasswordChecker) -> None:
        self._passwords = passwords
        self._checker = checker

    def authenticate(
        self, credentials: Credentials, is_waiting: IsWaiting
    ) -> "Answer | asyncio.Future[Answer]":
        user, password = credentials.user, credentials.password
        if not (user or password):
            return None
        if not (user and password):
            return ReasonCode.BAD_USER_NAME_OR_PASSWORD
        if self._passwords.remembers(user, password):
            return self._decide(user, password)
        return self._checker.check(
            user, credentials.host, lambda: self._decide(user, password), is_waiting
        )

    def _decide(self, user: str, password: bytes) -> Decision:
        if self._passwords.verify(user, password):
            return Grant(user)
        return ReasonCode.BAD_USER_NAME_OR_PASSWORD
