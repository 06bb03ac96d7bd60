"""The chain of authenticators: every way to log in, and answers that take time."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from dovetail.broker.auth.authenticator import (
    Answer,
    Authenticator,
    Credentials,
    Decision,
    Grant,
    IsWaiting,
)
from dovetail.broker.auth.chain import AuthenticatorChain, load_passwords, make_chain
from dovetail.broker.auth.password_checker import PasswordChecker
from dovetail.broker.auth.passwords import PasswordFile, set_password
from dovetail.errors import ConfigError, ReasonCode
from dovetail.settings import AccessSettings, ListenerSettings

TCP = ListenerSettings(kind="tcp")
TLS = ListenerSettings(kind="tls", certificate="c", client_ca="a", client_certificate="optional")
TLS_WITHOUT_NAMES = ListenerSettings(
    kind="tls",
    certificate="c",
    client_ca="a",
    client_certificate="required",
    user_from_certificate=False,
)
BAD = ReasonCode.BAD_USER_NAME_OR_PASSWORD
NO = ReasonCode.NOT_AUTHORIZED


@pytest.fixture(scope="module")
def passwords(tmp_path_factory: pytest.TempPathFactory) -> PasswordFile:
    file: Path = tmp_path_factory.mktemp("passwords") / "users"
    set_password(file, "ann", b"secret")
    return PasswordFile.load(file)


async def settled(answer: "Decision | asyncio.Future[Decision]") -> Decision:
    return await answer if isinstance(answer, asyncio.Future) else answer


def decide(
    folder: Path, access: AccessSettings, passwords: PasswordFile | None, credentials: Credentials
) -> Decision:
    async def work() -> Decision:
        checker = PasswordChecker(folder / "logins", 0)
        try:
            return await settled(make_chain(access, passwords, checker).authenticate(credentials))
        finally:
            checker.stop()

    return asyncio.run(work())


# What the settings ask for ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "password", "expected"),
    [
        ("ann", b"secret", Grant("ann")),
        ("ann", b"wrong", BAD),
        ("ann", None, BAD),
        ("ann", b"", BAD),
        ("bob", b"secret", BAD),
        (None, b"secret", BAD),
        ("", b"secret", BAD),
        (None, None, Grant(None)),
        ("", None, Grant(None)),
        ("", b"", Grant(None)),
    ],
)
def test_names_and_passwords(
    tmp_path: Path,
    passwords: PasswordFile,
    user: str | None,
    password: bytes | None,
    expected: Decision,
) -> None:
    credentials = Credentials(user=user, password=password, is_loopback=True, listener=TCP)
    decision = decide(tmp_path, AccessSettings(anonymous="always"), passwords, credentials)
    assert decision == expected
    assert type(decision) is type(expected)


@pytest.mark.parametrize(
    ("anonymous", "loopback", "expected"),
    [
        ("always", False, Grant(None)),
        ("always", True, Grant(None)),
        ("loopback", True, Grant(None)),
        ("loopback", False, NO),
        ("never", True, NO),
        ("never", False, NO),
    ],
)
@pytest.mark.parametrize("user", [None, "ann"])
@pytest.mark.parametrize("password", [None, b"x"])
def test_without_a_password_file_a_name_proves_nothing(
    tmp_path: Path,
    anonymous: Literal["always", "loopback", "never"],
    loopback: bool,
    expected: Decision,
    user: str | None,
    password: bytes | None,
) -> None:
    credentials = Credentials(user=user, password=password, is_loopback=loopback, listener=TCP)
    assert decide(tmp_path, AccessSettings(anonymous=anonymous), None, credentials) == expected


@pytest.mark.parametrize(
    ("name", "user", "password", "listener", "expected"),
    [
        ("device", None, None, TLS, Grant("device")),
        ("device", "ann", b"wrong", TLS, Grant("device")),
        ("", None, None, TLS, NO),
        (None, None, None, TLS, NO),
        (None, "ann", b"secret", TLS, Grant("ann")),
        ("", "ann", b"wrong", TLS, BAD),
        ("device", None, None, TLS_WITHOUT_NAMES, NO),
        ("device", "ann", b"secret", TLS_WITHOUT_NAMES, Grant("ann")),
        ("device", "ann", b"secret", None, Grant("ann")),
    ],
)
def test_certificates(
    tmp_path: Path,
    passwords: PasswordFile,
    name: str | None,
    user: str | None,
    password: bytes | None,
    listener: ListenerSettings | None,
    expected: Decision,
) -> None:
    credentials = Credentials(
        user=user, password=password, certificate_name=name, listener=listener
    )
    assert decide(tmp_path, AccessSettings(anonymous="never"), passwords, credentials) == expected


def test_a_password_file_is_loaded_if_the_settings_name_one(tmp_path: Path) -> None:
    file = tmp_path / "users"
    assert load_passwords(AccessSettings()) is None
    with pytest.raises(ConfigError):
        load_passwords(AccessSettings(password_file=str(file)))
    set_password(file, "ann", b"secret")
    loaded = load_passwords(AccessSettings(password_file=str(file)))
    assert loaded is not None
    assert loaded.users == ("ann",)


def test_only_a_hash_waits(tmp_path: Path) -> None:
    """Certificates, incomplete and known pairs are decided at once."""
    set_password(tmp_path / "users", "ann", b"secret")

    async def work() -> None:
        checker = PasswordChecker(tmp_path / "logins", 0)
        chain = make_chain(AccessSettings(), PasswordFile.load(tmp_path / "users"), checker)

        def waits(user: str | None, password: bytes | None, name: str | None = None) -> bool:
            credentials = Credentials(
                user=user, password=password, certificate_name=name, listener=TLS
            )
            return isinstance(chain.authenticate(credentials), asyncio.Future)

        assert waits("ann", b"secret")
        assert waits("unknown", b"secret")
        assert not waits("ann", b"secret", "device")
        assert not waits("ann", None)
        assert not waits(None, b"secret")
        assert not waits(None, None)
        credentials = Credentials(user="ann", password=b"secret")
        assert await settled(chain.authenticate(credentials)) == Grant("ann")
        assert not waits("ann", b"secret")
        assert waits("ann", b"wrong")
        checker.stop()

    asyncio.run(work())


# Chains of any authenticators ---------------------------------------------------------------------


class FixedAuthenticator:
    """Always gives the same answer, at once or later."""

    def __init__(self, answer: Answer | Exception, *, is_late: bool = False) -> None:
        self._answer = answer
        self._is_late = is_late
        self.asked: list[Credentials] = []
        self.answering: asyncio.Future[Answer] | None = None

    def authenticate(
        self, credentials: Credentials, _is_waiting: IsWaiting
    ) -> "Answer | asyncio.Future[Answer]":
        self.asked.append(credentials)
        if not self._is_late:
            assert not isinstance(self._answer, Exception)
            return self._answer
        self.answering = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(self._settle)
        return self.answering

    def _settle(self) -> None:
        assert self.answering is not None
        if isinstance(self._answer, Exception):
            self.answering.set_exception(self._answer)
        elif not self.answering.done():
            self.answering.set_result(self._answer)


ANN = Credentials(client_id="c", user="ann", password=b"secret")


def run(*authenticators: Authenticator) -> Decision:
    async def work() -> Decision:
        return await settled(AuthenticatorChain(authenticators).authenticate(ANN))

    return asyncio.run(work())


def late(answer: Answer) -> FixedAuthenticator:
    return FixedAuthenticator(answer, is_late=True)


WAYS: list[Callable[[Answer], FixedAuthenticator]] = [FixedAuthenticator, late]


@pytest.mark.parametrize("first", WAYS)
@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("decision", [Grant("ann"), Grant(None), BAD, ReasonCode.SERVER_BUSY])
def test_the_first_that_knows_the_credentials_decides(
    first: Callable[[Answer], FixedAuthenticator],
    second: Callable[[Answer], FixedAuthenticator],
    decision: Decision,
) -> None:
    passing, deciding, never_asked = (
        first(None),
        second(decision),
        FixedAuthenticator(Grant("other")),
    )
    assert run(passing, deciding, never_asked) == decision
    assert passing.asked == deciding.asked == [ANN]
    assert never_asked.asked == []


@pytest.mark.parametrize("one", WAYS)
def test_credentials_that_nobody_knows_are_refused(
    one: Callable[[Answer], FixedAuthenticator],
) -> None:
    assert run() == NO
    assert run(one(None), one(None)) == NO


def test_an_authenticator_that_fails_decides_nothing() -> None:
    """Its error reaches the caller: the client is not let in by the next one."""
    after = FixedAuthenticator(Grant("ann"))
    with pytest.raises(OSError, match="unreachable"):
        run(FixedAuthenticator(OSError("unreachable"), is_late=True), after)
    assert after.asked == []


def test_a_cancelled_answer_cancels_the_decision() -> None:
    async def work() -> None:
        waiting, after = late(None), FixedAuthenticator(Grant("ann"))
        decision = AuthenticatorChain([waiting, after]).authenticate(ANN)
        assert isinstance(decision, asyncio.Future)
        assert waiting.answering is not None
        waiting.answering.cancel()
        await asyncio.wait({decision})
        assert decision.cancelled()
        assert after.asked == []

    asyncio.run(work())


def test_an_answer_that_nobody_waits_for() -> None:
    async def work() -> None:
        for answer in (None, Grant("ann")):
            waiting = late(answer)
            decision = AuthenticatorChain([waiting, FixedAuthenticator(BAD)]).authenticate(ANN)
            assert isinstance(decision, asyncio.Future)
            decision.cancel()
            await asyncio.sleep(0.01)
            assert waiting.answering is not None
            assert waiting.answering.done()

    asyncio.run(work())
