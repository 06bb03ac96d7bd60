"""The files that settings name: where relative paths begin, and whether they can be used."""

import ssl
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from dovetail.errors import ConfigError
from dovetail.settings.faults import Fault, below, key_name
from dovetail.settings.model import SECURE_KINDS, Listener, Settings


def anchored(settings: Settings, folder: Path) -> Settings:
    """The same settings, their relative paths taken from `folder`."""

    def anchor(path: str) -> str:
        return str(folder / path) if path else ""

    return replace(
        settings,
        data=anchor(settings.data),
        access=replace(settings.access, password_file=anchor(settings.access.password_file)),
        listeners=tuple(
            replace(
                listener,
                certificate=anchor(listener.certificate),
                key=anchor(listener.key),
                client_ca=anchor(listener.client_ca),
            )
            for listener in settings.listeners
        ),
    )


def check_files(settings: Settings) -> None:
    """Look at every file that is named; a ConfigError tells all that cannot be used."""
    faults = [f"{key_name(path)}: {sentence}" for path, sentence in _faults(settings)]
    if faults:
        raise ConfigError("\n".join(faults))


def _faults(settings: Settings) -> Iterator[Fault]:
    data = Path(settings.data)
    if data.exists() and not data.is_dir():
        yield Fault(("data",), f"{data} is no folder.")
    password_file = settings.access.password_file
    if password_file and (why := _unreadable(password_file)) is not None:
        yield Fault(
            ("access", "password_file"),
            f"{why} `dovetail passwd {password_file} USER` makes one.",
        )
    for index, listener in enumerate(settings.listeners):
        yield from below(("listeners", index), _listener_faults(listener))


def _listener_faults(listener: Listener) -> Iterator[Fault]:
    unreadable = [
        Fault((key,), why)
        for key in ("certificate", "key", "client_ca")
        if getattr(listener, key) and (why := _unreadable(getattr(listener, key))) is not None
    ]
    yield from unreadable
    if listener.kind in SECURE_KINDS and not unreadable:
        yield from _pem_faults(listener)


def _pem_faults(listener: Listener) -> Iterator[Fault]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # With an empty passphrase OpenSSL does not ask for one on the terminal.
        context.load_cert_chain(listener.certificate, listener.key or None, password="")
    except ssl.SSLError as error:
        pair = f"{listener.certificate} and {listener.key or 'the key in it'}"
        why = f"are no PEM certificate and its key without a passphrase ({error.reason or error})."
        yield Fault(("certificate",), f"{pair} {why}")
    if listener.client_ca:
        try:
            context.load_verify_locations(listener.client_ca)
        except ssl.SSLError as error:
            why = f"holds no PEM certificates ({error.reason or error})."
            yield Fault(("client_ca",), f"{listener.client_ca} {why}")


def _unreadable(path: str) -> str | None:
    try:
        with Path(path).open("rb"):
            return None
    except OSError as error:
        return f"cannot read {path}: {error.strerror}."
