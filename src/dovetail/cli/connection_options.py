"""The options that `pub` and `sub` have in common: which server, as whom, and how.

They are the parameters of a function that is read and never called, so that both commands show
them alike and get them as one `ConnectionOptions`.
"""

import functools
import inspect
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from dovetail.cli import option_types


class MqttVersion(StrEnum):
    """The versions of MQTT that `pub` and `sub` speak."""

    MQTT_5 = "5"
    MQTT_3_1_1 = "3.1.1"


def _connection(
    *,
    host: Annotated[str, option_types.value("The server.", "HOST")] = "localhost",
    port: Annotated[
        int | None,
        option_types.port("Its port. Default: 1883; 8883 with TLS; 8083 or 8084 with --websocket."),
    ] = None,
    user: Annotated[str | None, option_types.value("Who we are.", "NAME")] = None,
    password: Annotated[
        str | None,
        option_types.value(
            "The user's password. Other users of this machine can see it; "
            "better --password-file, or the variable DOVETAIL_PASSWORD."
        ),
    ] = None,
    password_file: Annotated[
        Path | None, option_types.file("A file whose first line is the password.")
    ] = None,
    client_id: Annotated[
        str | None, option_types.value("The client's name. Default: one by chance.")
    ] = None,
    keep_alive_seconds: Annotated[
        int,
        option_types.seconds(
            "--keep-alive", "How often to make sure of the server; 0: never.", most=65_535
        ),
    ] = 60,
    tls: Annotated[
        bool, option_types.flag("--tls", "Use TLS. The four options below ask for it too.")
    ] = False,
    ca: Annotated[
        Path | None, option_types.file("Whom to trust, in PEM form. Default: as the system.")
    ] = None,
    certificate: Annotated[
        Path | None, option_types.file("Our own certificate, in PEM form.")
    ] = None,
    key: Annotated[
        Path | None, option_types.file("Its key. Default: in the certificate's file.")
    ] = None,
    insecure: Annotated[
        bool, option_types.flag("--insecure", "Trust whatever certificate the server has.")
    ] = False,
    websocket: Annotated[
        bool, option_types.flag("--websocket", "Use a websocket, with the path /mqtt.")
    ] = False,
    version: Annotated[
        MqttVersion, option_types.value("The version of MQTT.", "5|3.1.1", "--mqtt")
    ] = MqttVersion.MQTT_5,
    session_expiry_seconds: Annotated[
        int | None,
        option_types.expiry(
            "--session-expiry", "How long the server keeps the session when we are gone."
        ),
    ] = None,
    will_topic: Annotated[
        str | None, option_types.value("Where the server publishes our will if we vanish.", "TOPIC")
    ] = None,
    will_payload: Annotated[
        str | None, option_types.value("The will's payload. Default: empty.")
    ] = None,
    will_qos: Annotated[int, option_types.qos("The will's QoS.")] = 0,
    will_retain: Annotated[
        bool, option_types.flag("--will-retain", "The will is to be retained.")
    ] = False,
) -> None:
    """Read, and never called."""


def with_connection(command: Callable[..., None]) -> Callable[..., None]:
    """A command with these options too, which get them as its argument `options`."""
    own = inspect.signature(command).parameters
    shared = inspect.signature(_connection).parameters

    @functools.wraps(command)
    def run(**given: object) -> None:
        from dovetail.client import ConnectionOptions

        options: dict[str, Any] = {name: given.pop(name) for name in shared}
        command(options=ConnectionOptions(**options), **given)

    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in (*own.values(), *shared.values())
        if parameter.name != "options"
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
