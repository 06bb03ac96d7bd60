"""The files that settings name: resolves relative paths, and checks that files can be used."""

import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from dovetail.errors import ConfigError
from dovetail.process.extras import Extra, how_to_install, is_obtainable
from dovetail.settings.cluster import ClusterSettings
from dovetail.settings.faults import SettingFault, key_name, with_prefix
from dovetail.settings.listeners import ListenerSettings
from dovetail.settings.model import Settings
from dovetail.settings.toml_lines import KeyPath


def resolve_paths(settings: Settings, folder: Path) -> Settings:
    """Return the settings with relative paths taken from `folder`."""

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
    """Check every named file. Raise ConfigError with all that cannot be used."""
    faults = [f"{key_name(path)}: {sentence}" for path, sentence in _faults(settings)]
    if faults:
        raise ConfigError("\n".join(faults))


def _faults(settings: Settings) -> Iterator[SettingFault]:
    yield from _folder_faults(("data",), settings.data)
    if settings.has_archive:
        yield from _folder_faults(("archive", "folder"), settings.archive.folder)
        if not is_obtainable(Extra.ARCHIVE):
            yield SettingFault(
                ("archive", "topics"),
                "an archive needs pyarrow, which is not installed: "
                f"`{how_to_install(Extra.ARCHIVE)}`.",
            )
    password_file = settings.access.password_file
    if password_file and (why := _unreadable(password_file)) is not None:
        yield SettingFault(
            ("access", "password_file"),
            f"{why} `dovetail passwd {password_file} USER` makes one.",
        )
    for index, listener in enumerate(settings.listeners):
        yield from with_prefix(("listeners", index), _certificate_faults(listener, "client_ca"))
    cluster = settings.cluster
    if cluster.secret_file and (why := _unreadable(cluster.secret_file)) is not None:
        yield SettingFault(
            ("cluster", "secret_file"),
            f"{why} `(umask 077; openssl rand -hex 32 > {cluster.secret_file})` makes one for the "
            "first node; the others need a copy of it.",
        )
    yield from with_prefix(("cluster",), _certificate_faults(cluster, "ca"))


def _folder_faults(path: KeyPath, name: str) -> Iterator[SettingFault]:
    folder = Path(name)
    with suppress(OSError):  # no permission: the first use of the folder reports it
        existing = next(one for one in (folder, *folder.parents) if one.exists())
        if not existing.is_dir():
            yield SettingFault(path, f"{existing} is no folder.")


def _certificate_faults(
    table: ListenerSettings | ClusterSettings, authorities: str
) -> Iterator[SettingFault]:
    """`authorities`: the key of the file with trusted authorities."""
    unreadable = [
        SettingFault((key,), why)
        for key in ("certificate", "key", authorities)
        if getattr(table, key) and (why := _unreadable(getattr(table, key))) is not None
    ]
    yield from unreadable
    if table.certificate and not unreadable:
        yield from _pem_faults(table, authorities)


def _pem_faults(
    table: ListenerSettings | ClusterSettings, authorities: str
) -> Iterator[SettingFault]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # With an empty passphrase OpenSSL does not ask for one on the terminal.
        context.load_cert_chain(table.certificate, table.key or None, password="")
    except ssl.SSLError as error:
        pair = f"{table.certificate} and {table.key or 'the key in it'}"
        why = f"are no PEM certificate and its key without a passphrase ({error.reason or error})."
        yield SettingFault(("certificate",), f"{pair} {why}")
    file = getattr(table, authorities)
    if file:
        try:
            context.load_verify_locations(file)
        except ssl.SSLError as error:
            why = f"holds no PEM certificates ({error.reason or error})."
            yield SettingFault((authorities,), f"{file} {why}")


def _unreadable(path: str) -> str | None:
    try:
        with Path(path).open("rb"):
            return None
    except OSError as error:
        return f"cannot read {path}: {error.strerror}."
