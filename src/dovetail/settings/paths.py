"""The files that settings name: where relative paths begin, and whether they can be used."""

import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from dovetail.errors import ConfigError
from dovetail.process.extras import Extra, how_to_install, is_obtainable
from dovetail.settings.cluster import Cluster
from dovetail.settings.faults import Fault, below, key_name
from dovetail.settings.listeners import Listener
from dovetail.settings.model import Settings
from dovetail.settings.toml_lines import KeyPath


def anchored(settings: Settings, folder: Path) -> Settings:
    """The same settings, their relative paths taken from `folder`."""

    def anchor(path: str) -> str:
        return str(folder / path) if path else ""

    return replace(
        settings,
        data=anchor(settings.data),
        archive=replace(settings.archive, folder=anchor(settings.archive.folder)),
        access=replace(settings.access, password_file=anchor(settings.access.password_file)),
        cluster=replace(
            settings.cluster,
            secret_file=anchor(settings.cluster.secret_file),
            certificate=anchor(settings.cluster.certificate),
            key=anchor(settings.cluster.key),
            ca=anchor(settings.cluster.ca),
        ),
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
    yield from _folder_faults(("data",), settings.data)
    if settings.has_archive:
        yield from _folder_faults(("archive", "folder"), settings.archive.folder)
        if not is_obtainable(Extra.ARCHIVE):
            yield Fault(
                ("archive", "topics"),
                "an archive needs pyarrow, which is not installed: "
                f"`{how_to_install(Extra.ARCHIVE)}`.",
            )
    password_file = settings.access.password_file
    if password_file and (why := _unreadable(password_file)) is not None:
        yield Fault(
            ("access", "password_file"),
            f"{why} `dovetail passwd {password_file} USER` makes one.",
        )
    for index, listener in enumerate(settings.listeners):
        yield from below(("listeners", index), _certificate_faults(listener, "client_ca"))
    cluster = settings.cluster
    if cluster.secret_file and (why := _unreadable(cluster.secret_file)) is not None:
        yield Fault(
            ("cluster", "secret_file"),
            f"{why} `(umask 077; openssl rand -hex 32 > {cluster.secret_file})` makes one for the "
            "first node; the others need a copy of it.",
        )
    yield from below(("cluster",), _certificate_faults(cluster, "ca"))


def _folder_faults(path: KeyPath, name: str) -> Iterator[Fault]:
    folder = Path(name)
    with suppress(OSError):  # what may not be looked at is told by who has to use it
        there = next(one for one in (folder, *folder.parents) if one.exists())
        if not there.is_dir():
            yield Fault(path, f"{there} is no folder.")


def _certificate_faults(table: Listener | Cluster, authorities: str) -> Iterator[Fault]:
    """`authorities`: the key of the file that says whom to believe."""
    unreadable = [
        Fault((key,), why)
        for key in ("certificate", "key", authorities)
        if getattr(table, key) and (why := _unreadable(getattr(table, key))) is not None
    ]
    yield from unreadable
    if table.certificate and not unreadable:
        yield from _pem_faults(table, authorities)


def _pem_faults(table: Listener | Cluster, authorities: str) -> Iterator[Fault]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # With an empty passphrase OpenSSL does not ask for one on the terminal.
        context.load_cert_chain(table.certificate, table.key or None, password="")
    except ssl.SSLError as error:
        pair = f"{table.certificate} and {table.key or 'the key in it'}"
        why = f"are no PEM certificate and its key without a passphrase ({error.reason or error})."
        yield Fault(("certificate",), f"{pair} {why}")
    file = getattr(table, authorities)
    if file:
        try:
            context.load_verify_locations(file)
        except ssl.SSLError as error:
            why = f"holds no PEM certificates ({error.reason or error})."
            yield Fault((authorities,), f"{file} {why}")


def _unreadable(path: str) -> str | None:
    try:
        with Path(path).open("rb"):
            return None
    except OSError as error:
        return f"cannot read {path}: {error.strerror}."
