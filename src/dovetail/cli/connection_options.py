"""The connection options that `pub` and `sub` share.

They are the parameters of a function that is only inspected, never called. So both commands show
the same help, and get the options as one `ConnectionOptions`.
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
    host: Annotated[str, option_types.value("The MQTT server.", "HOST")] = "localhost",
    port: Annotated[
        int | None,
        option_types.port(
            "The server's port. Default: 1883; 8883 with TLS; 8083 or 8084 with --websocket."
        ),
    ] = None,
    user: Annotated[str | None, option_types.value("Your user name.", "NAME")] = None,
    password: Annotated[
        str | None,
        option_types.value(
            "The user's password. Other users of this machine can see it: prefer --password-file "
            "or the environment variable DOVETAIL_PASSWORD."
        ),
    ] = None,
    password_file: Annotated[
        Path | None, option_types.file("A file with the password in its first line.")
    ] = None,
    client_id: Annotated[
        str | None, option_types.value("The client identifier. Default: a random one.")
    ] = None,
    keep_alive_seconds: Annotated[
        int,
        option_types.seconds(
            "--keep-alive", "The MQTT keep-alive interval. 0: none.", maximum=65_535
        ),
    ] = 60,
    tls: Annotated[
        bool, option_types.flag("--tls", "Use TLS. Each of the next four options implies it.")
    ] = False,
    ca: Annotated[
        Path | None,
        option_types.file("Trusted CA certificates (PEM). Default: those of the system."),
    ] = None,
    certificate: Annotated[
        Path | None, option_types.file("The client's certificate (PEM).")
    ] = None,
    key: Annotated[
        Path | None,
        option_types.file("The certificate's key (PEM). Default: in the certificate's file."),
    ] = None,
    insecure: Annotated[
        bool, option_types.flag("--insecure", "Do not check the server's certificate.")
    ] = False,
    websocket: Annotated[
        bool, option_types.flag("--websocket", "Connect by websocket, with the path /mqtt.")
    ] = False,
    version: Annotated[
        MqttVersion, option_types.value("The version of MQTT.", "5|3.1.1", "--mqtt")
    ] = MqttVersion.MQTT_5,
    session_expiry_seconds: Annotated[
        int | None,
        option_types.expiry(
            "--session-expiry", "How long the server keeps the session after a disconnect."
        ),
    ] = None,
    will_topic: Annotated[
        str | None,
        option_types.value(
            "Let the server publish a will to this topic if the client vanishes.", "TOPIC"
        ),
    ] = None,
    will_payload: Annotated[
        str | None, option_types.value("The will's payload. Default: empty.")
    ] = None,
    will_qos: Annotated[int, option_types.qos("The will's QoS.")] = 0,
    will_retain: Annotated[bool, option_types.flag("--will-retain", "Retain the will.")] = False,
) -> None:
    """Hold the options as parameters; `with_connection` inspects them."""


def with_connection(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command, which gets them as its argument `options`."""
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
