"""The addresses where clients are served: sockets, TLS, and what a taken port leads to."""

import asyncio
import errno
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dovetail.broker.server import Connection, Server
from dovetail.broker.tls import Tls, TlsProtocol
from dovetail.broker.websocket import WebSocketConnection
from dovetail.config import PORTS_TRIED_MAX
from dovetail.errors import ConfigError
from dovetail.settings import SECURE_KINDS, WEBSOCKET_KINDS, Listener

log = logging.getLogger("dovetail.listeners")

_BACKLOG = 1_024


@dataclass(slots=True)
class Listening:
    """A listener that is open."""

    listener: Listener
    host: str
    port: int
    server: asyncio.Server
    tls: Tls | None
    moved_because: str | None = None

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.listener.kind in WEBSOCKET_KINDS:
            scheme = "wss" if self.tls is not None else "ws"
            return f"{scheme}://{host}:{self.port}{self.listener.path}"
        return f"{host}:{self.port}"


async def listen(
    server: Server, listener: Listener, *, may_move: bool = False, shares_port: bool = False
) -> Listening:
    """Take an address. Clients are let in by `serve`.

    One that `may_move` takes a port behind its own if that one is taken; one that `shares_port` has
    it together with other brokers, and the system says who gets a client.
    """
    tls = Tls(tls_context(listener)) if listener.kind in SECURE_KINDS else None
    factory = connection_factory(server, listener, tls)
    ports = [listener.port]
    if may_move:
        ports += [*range(listener.port + 1, listener.port + PORTS_TRIED_MAX), 0]
    reason = None
    for port in ports:
        try:
            opened = await server.loop.create_server(
                factory,
                listener.host or None,
                port,
                backlog=_BACKLOG,
                reuse_port=shares_port or None,
                start_serving=False,
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port != ports[-1]:
                reason = f"port {listener.port} is taken by another program"
                continue
            raise _refused(listener, port, error) from None
        host, taken = opened.sockets[0].getsockname()[:2]
        return Listening(listener, listener.host or host, taken, opened, tls, reason)
    raise AssertionError("the last port is any free one")


async def serve(listening: Listening) -> None:
    """Let clients in."""
    try:
        await listening.server.start_serving()
    except OSError as error:
        raise _refused(listening.listener, listening.port, error) from None


def _refused(listener: Listener, port: int, error: OSError) -> ConfigError:
    return ConfigError(
        f"cannot listen on {listener.host or 'any address'}, port {port} ({listener.kind}): "
        f"{explain(error)}",
        hint="Choose another with --port, or `port` in the configuration."
        if error.errno in (errno.EADDRINUSE, errno.EACCES)
        else None,
    )


def explain(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is taken by another program"
    if error.errno == errno.EACCES:
        return "ports below 1024 need a privileged user"
    return (error.strerror or str(error)).lower()


def connection_factory(
    server: Server, listener: Listener, tls: Tls | None
) -> Callable[[], asyncio.Protocol]:
    name = f"{listener.kind}:{listener.port}"
    kind = WebSocketConnection if listener.kind in WEBSOCKET_KINDS else Connection
    if tls is None:
        return lambda: kind(server, name, listener)
    return lambda: TlsProtocol(server, name, tls, lambda: kind(server, name, listener))


def tls_context(listener: Listener) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(listener.certificate, listener.key or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cannot use the certificate {listener.certificate}"
            f"{' with the key ' + listener.key if listener.key else ''}: {_tls_reason(error)}"
        ) from None
    if not listener.client_ca:
        return context
    context.verify_mode = (
        ssl.CERT_REQUIRED if listener.client_certificate == "required" else ssl.CERT_OPTIONAL
    )
    try:
        context.load_verify_locations(Path(listener.client_ca))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cannot use the client authorities {listener.client_ca}: {_tls_reason(error)}"
        ) from None
    return context


def renew(listening: Listening, context: ssl.SSLContext) -> None:
    """Connections from now on get this certificate, and these client authorities alone."""
    assert listening.tls is not None
    listening.tls.context = context


def _tls_reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return (error.strerror or str(error)).lower()
