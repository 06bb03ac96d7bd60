"""`[[listeners]]`: the addresses that MQTT clients connect to."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from dovetail.settings.field import bounded, describe

ListenerKind = Literal["tcp", "tls", "websocket", "secure-websocket"]

DEFAULT_PORTS: Mapping[str, int] = {
    "tcp": 1883,
    "tls": 8883,
    "websocket": 8083,
    "secure-websocket": 8084,
}
SECURE_KINDS = frozenset({"tls", "secure-websocket"})
WEBSOCKET_KINDS = frozenset({"websocket", "secure-websocket"})

_PORT_OF_KIND = -1


class ListenerSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One address that MQTT clients connect to."""

    kind: Annotated[ListenerKind, describe("The transport of MQTT at this address.")]
    host: Annotated[
        str,
        describe(
            "The address or host name to listen on. 0.0.0.0 is every IPv4 address of this machine, "
            ":: every IPv6 one, and an empty text both."
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        bounded(
            0,
            65_535,
            "The port. Left out, it goes by kind: tcp 1883, tls 8883, websocket 8083, "
            "secure-websocket 8084. 0 takes any free one.",
        ),
    ] = _PORT_OF_KIND
    certificate: Annotated[
        str,
        describe(
            "The server's certificate chain, a PEM file. tls and secure-websocket need it, and the "
            "others do not take it."
        ),
    ] = ""
    key: Annotated[
        str,
        describe(
            "The certificate's private key, a PEM file without a passphrase. Empty: it is in the "
            "certificate's file."
        ),
    ] = ""
    client_ca: Annotated[
        str,
        describe(
            "A PEM file with the authorities whose client certificates are trusted. Needed if "
            "client_certificate is optional or required."
        ),
    ] = ""
    client_certificate: Annotated[
        Literal["none", "optional", "required"],
        describe(
            "Does the broker ask clients for a certificate? With required, a client without one is "
            "refused before MQTT begins; with optional, it has to log in like others."
        ),
    ] = "none"
    user_from_certificate: Annotated[
        bool,
        describe(
            "The common name of a client certificate is the user name of the client, and no "
            "password is needed. With false, the certificate only permits the connection."
        ),
    ] = True
    path: Annotated[
        str, describe("The path of the websocket. A request for another one is answered with 404.")
    ] = "/mqtt"
    allowed_origins: Annotated[
        tuple[str, ...],
        describe(
            "Web pages that may open a websocket here, by origin, such as https://example.org. "
            "Empty: any. Others are refused with 403. Clients other than browsers send no origin, "
            "and are always accepted."
        ),
    ] = ()

    def __post_init__(self) -> None:
        if self.port == _PORT_OF_KIND:
            force_setattr(self, "port", DEFAULT_PORTS[self.kind])
