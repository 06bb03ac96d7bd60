"""The connection options of `pub` and `sub`: address, credentials, TLS and will.

They are checked before anything is sent. Error messages name the options of the command line,
because the user corrects them there.
"""

import os
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dovetail.errors import ClientError, ConfigError
from dovetail.topics.names import check_name

MQTT_5 = "5"
MQTT_3_1_1 = "3.1.1"

PASSWORD_VARIABLE = "DOVETAIL_PASSWORD"  # noqa: S105
TEXT_BYTES_MAX = 65_535
"""The largest text or binary field of MQTT (section 1.5.4): its length has two bytes."""

WEBSOCKET_PATH = "/mqtt"

PORTS = {
    ("tcp", "plain"): 1883,
    ("tcp", "tls"): 8883,
    ("websocket", "plain"): 8083,
    ("websocket", "tls"): 8084,
}
"""The default ports of listeners, copied from the settings, whose import takes 0.1 s. A test
compares them."""

_PASSWORD_FILE_BYTES_MAX = TEXT_BYTES_MAX + 2


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """The options that `pub` and `sub` share. `check` raises if they contradict each other."""

    host: str = "localhost"
    port: int | None = None
    user: str | None = None
    password: str | None = None
    password_file: Path | None = None
    client_id: str | None = None
    keep_alive_seconds: int = 60
    tls: bool = False
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False
    websocket: bool = False
    version: str = MQTT_5
    session_expiry_seconds: int | None = None
    will_topic: str | None = None
    will_payload: str | None = None
    will_qos: int = 0
    will_retain: bool = False

    @property
    def uses_tls(self) -> bool:
        """Each option that only makes sense with TLS implies it."""
        return self.tls or self.insecure or any((self.ca, self.certificate, self.key))

    @property
    def chosen_port(self) -> int:
        if self.port is not None:
            return self.port
        transport = "websocket" if self.websocket else "tcp"
        return PORTS[transport, "tls" if self.uses_tls else "plain"]

    @property
    def address(self) -> str:
        """HOST:PORT, with an IPv6 address in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.chosen_port}"

    def check(self) -> None:
        if not self.host:
            raise ConfigError("--host is empty.")
        for option, text in (
            ("--user", self.user),
            ("--password", self.password),
            ("--client-id", self.client_id),
        ):
            check_text(option, text)
        if self.password is not None and self.password_file is not None:
            raise ConfigError("--password and --password-file are two passwords; give one.")
        if self.user is None and not (self.password is None and self.password_file is None):
            raise ConfigError("a password goes with a name: give --user too.")
        if self.key is not None and self.certificate is None:
            raise ConfigError("--key goes with --certificate.")
        self.require_mqtt_5({"--session-expiry": self.session_expiry_seconds})
        self._check_will()

    def _check_will(self) -> None:
        if self.will_topic is not None:
            check_topic("--will-topic", self.will_topic)
            if len(os.fsencode(self.will_payload or "")) > TEXT_BYTES_MAX:
                raise ConfigError(f"--will-payload has more than {TEXT_BYTES_MAX:,} bytes.")
        elif self.will_payload is not None or self.will_qos or self.will_retain:
            raise ConfigError("a will needs --will-topic.")

    def require_mqtt_5(self, options: Mapping[str, object]) -> None:
        """Raise if one of these options is set and the version is not MQTT 5."""
        given = [option for option, value in options.items() if value]
        if given and self.version != MQTT_5:
            raise ConfigError(f"{given[0]} needs MQTT 5, and this is MQTT {self.version}.")

    def client_id_or_random(self) -> str:
        """Return the given identifier, or a random one that every server accepts [MQTT-3.1.3-5]."""
        return self.client_id or f"dovetail{secrets.token_hex(6)}"

    def read_password(self) -> str | None:
        """Read the password from the file, the option or the environment; None without a user."""
        if self.user is None:
            return None
        if self.password_file is not None:
            return _read_password_file(self.password_file)
        if self.password is not None:
            return self.password
        password = os.environ.get(PASSWORD_VARIABLE)
        check_text(PASSWORD_VARIABLE, password)
        return password

    def make_tls_context(self) -> ssl.SSLContext | None:
        if not self.uses_tls:
            return None
        # One file after the other, so that an error names its file.
        context = ssl.create_default_context()
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.ca is not None:
            context = _make_trusting_context(self.ca)
        if self.certificate is not None:
            _load_certificate(context, self.certificate, self.key)
        return context


def check_text(option: str, text: str | None) -> None:
    """Raise if the text cannot be an MQTT string."""
    if text is None:
        return
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{option} is not UTF-8.") from None
    if len(encoded) > TEXT_BYTES_MAX:
        raise ConfigError(f"{option} has more than {TEXT_BYTES_MAX:,} bytes.")
    if "\0" in text:  # [MQTT-1.5.4-2]
        raise ConfigError(f"{option} holds the null character.")


def check_topic(error_prefix: str, topic: str) -> None:
    try:
        check_name(topic)
    except ClientError as error:
        raise ConfigError(f"{error_prefix}: {error.message}.") from None


def read_failure(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot read {path}: {error.strerror or error}")


def _read_password_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            line = file.readline(_PASSWORD_FILE_BYTES_MAX)
    except OSError as error:
        raise read_failure(path, error) from None
    try:
        password = line.rstrip(b"\r\n").decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: the password is not UTF-8.") from None
    check_text(str(path), password)
    return password


def _make_trusting_context(authority: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authority)
    except ssl.SSLError:
        raise ConfigError(f"{authority} has no certificate in PEM form.") from None
    except OSError as error:
        raise read_failure(authority, error) from None


def _load_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    named = certificate if key is None else f"{certificate} and {key}"
    for path in filter(None, (certificate, key)):
        try:
            path.open("rb").close()
        except OSError as error:
            raise read_failure(path, error) from None
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        reason = error.reason or "not a certificate and its key in PEM form"
        raise ConfigError(f"cannot use {named}: {reason.replace('_', ' ').lower()}") from None
