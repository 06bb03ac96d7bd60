"""Files that settings name, with real certificates."""

import importlib.util
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec.structs import replace

from dovetail.errors import ConfigError
from dovetail.process import extras
from dovetail.settings import (
    AccessSettings,
    ArchiveSettings,
    ClusterSettings,
    ListenerSettings,
    Settings,
    check_files,
    load_settings,
)


def write_certificate(folder: Path, name: str, passphrase: bytes | None = None) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        encryption = serialization.BestAvailableEncryption(passphrase)
    certificate_file, key_file = folder / f"{name}.pem", folder / f"{name}.key"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )
    return str(certificate_file), str(key_file)


def refusal(settings: Settings) -> str:
    with pytest.raises(ConfigError) as caught:
        check_files(settings)
    return str(caught.value)


@pytest.fixture
def plain(tmp_path: Path) -> Settings:
    return Settings(data=str(tmp_path / "data"))


def test_settings_without_files(plain: Settings) -> None:
    check_files(plain)
    Path(plain.data).mkdir()
    check_files(plain)


def test_data_that_is_a_file(plain: Settings) -> None:
    Path(plain.data).write_text("")
    assert refusal(plain) == f"data: {plain.data} is no folder."


def test_a_missing_password_file(plain: Settings, tmp_path: Path) -> None:
    users = tmp_path / "users"
    settings = replace(plain, access=AccessSettings(password_file=str(users)))
    assert refusal(settings) == (
        f"access.password_file: cannot read {users}: No such file or directory. "
        f"`dovetail passwd {users} USER` makes one."
    )
    users.write_text("")
    check_files(settings)


def test_certificates(plain: Settings, tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "server")
    both = tmp_path / "both.pem"
    both.write_bytes(Path(certificate).read_bytes() + Path(key).read_bytes())
    listener = ListenerSettings(
        kind="tls",
        certificate=certificate,
        key=key,
        client_ca=certificate,
        client_certificate="required",
    )
    check_files(replace(plain, listeners=(listener,)))
    check_files(replace(plain, listeners=(replace(listener, certificate=str(both), key=""),)))


def test_all_missing_files_are_listed(plain: Settings) -> None:
    listener = ListenerSettings(kind="tls", certificate="/no/c", key="/no/k", client_ca="/no/a")
    message = refusal(replace(plain, listeners=(ListenerSettings(kind="tcp"), listener)))
    assert [line.split(": ")[0] for line in message.splitlines()] == [
        "listeners[1].certificate",
        "listeners[1].key",
        "listeners[1].client_ca",
    ]


def test_a_key_of_another_certificate(plain: Settings, tmp_path: Path) -> None:
    certificate, _ = write_certificate(tmp_path, "server")
    _, key = write_certificate(tmp_path, "other")
    listener = ListenerSettings(kind="tls", certificate=certificate, key=key)
    message = refusal(replace(plain, listeners=(listener,)))
    assert message.startswith(f"listeners[0].certificate: {certificate} and {key} are no PEM")
    assert "MISMATCH" in message


def test_a_key_with_a_passphrase_does_not_ask_for_it(plain: Settings, tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "server", passphrase=b"secret")
    listener = ListenerSettings(kind="tls", certificate=certificate, key=key)
    assert "without a passphrase" in refusal(replace(plain, listeners=(listener,)))


def test_invalid_authorities(plain: Settings, tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "server")
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing\n")
    listener = ListenerSettings(
        kind="tls", certificate=certificate, key=key, client_ca=str(nothing)
    )
    message = refusal(replace(plain, listeners=(listener,)))
    assert message.startswith(f"listeners[0].client_ca: {nothing} holds no PEM certificates")


def test_files_of_the_cluster(plain: Settings, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    settings = replace(plain, cluster=ClusterSettings(enabled=True, secret_file=str(secret)))
    assert refusal(settings) == (
        f"cluster.secret_file: cannot read {secret}: No such file or directory. `(umask 077; "
        f"openssl rand -hex 32 > {secret})` makes one for the first node; the others need a copy "
        "of it."
    )
    secret.write_text("0123456789abcdef")
    check_files(settings)
    certificate, key = write_certificate(tmp_path, "node")
    cluster = ClusterSettings(enabled=True, certificate=certificate, key=key, ca=certificate)
    check_files(replace(plain, cluster=cluster))
    cluster = ClusterSettings(enabled=True, certificate=certificate, key=key, ca=str(secret))
    assert f"cluster.ca: {secret} holds no PEM" in refusal(replace(plain, cluster=cluster))
    cluster = ClusterSettings(enabled=True, certificate=str(secret))
    assert "cluster.certificate: " in refusal(replace(plain, cluster=cluster))


def test_paths_of_the_cluster_are_relative_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "dovetail.toml"
    file.write_text(
        "[cluster]\nenabled = true\nsecret_file = 's'\ncertificate = 'c'\nkey = 'k'\nca = 'a'\n"
    )
    cluster = load_settings(file).cluster
    named = (cluster.secret_file, cluster.certificate, cluster.key, cluster.ca)
    assert named == tuple(str(tmp_path / name) for name in "scka")


def test_an_archive_needs_a_folder_and_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    settings = Settings(archive=ArchiveSettings(topics=("#",), folder=str(file)))
    monkeypatch.setattr(extras, "_STATE", tmp_path / "no checkout")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError) as caught:
        check_files(settings)
    first, second = caught.value.message.splitlines()
    assert first == f"archive.folder: {file} is no folder."
    assert second.startswith("archive.topics: an archive needs pyarrow, which is not installed: ")
    check_files(
        Settings(archive=ArchiveSettings(folder=str(file)))
    )  # one that is off needs nothing
