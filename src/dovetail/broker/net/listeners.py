"""Opens the listeners where clients connect: ports, TLS, and another port if one is taken."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dovetail.broker.net.server import BrokerServer, ClientConnection
from dovetail.broker.net.tls_transport import TlsContext, TlsProtocol
from dovetail.broker.net.websocket import WebSocketConnection
from dovetail.errors import ConfigError
from dovetail.process import ports
from dovetail.settings import SECURE_KINDS, WEBSOCKET_KINDS, ListenerSettings

log = logging.getLogger("dovetail.listeners")

_BACKLOG = 1_024


@dataclass(slots=True)
class OpenListener:
    """A listener that is open."""

    listener: ListenerSettings
    host: str
    port: int
    sockets: ports.Sockets
    servers: list[asyncio.Server]
    tls: TlsContext | None
    moved_because: str | None = None

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.listener.kind in WEBSOCKET_KINDS:
            scheme = "wss" if self.tls is not None else "ws"
            return f"{scheme}://{host}:{self.port}{self.listener.path}"
        return f"{host}:{self.port}"

    def close(self) -> None:
        """Accept no further clients."""
        for server in self.servers:
            server.close()


async def listen(
    server: BrokerServer,
    listener: ListenerSettings,
    *,
    may_move: bool = False,
    shares_port: bool = False,
) -> OpenListener:
    """Bind the address of a listener. Then `serve` accepts clients.

    With `may_move` the listener takes a later port if its own is taken. With `shares_port` the
    parent process and other brokers listen there too, and the system distributes the clients.
    """
    tls = TlsContext(tls_context(listener)) if listener.kind in SECURE_KINDS else None
    factory = connection_factory(server, listener, tls)
    try:
        sockets, moved = await asyncio.to_thread(
            ports.take, listener.host, listener.port, may_move=may_move, is_shared=shares_port
        )
    except OSError as error:
        raise _refused(listener, listener.port, error) from None
    servers = [
        await server.loop.create_server(factory, sock=bound, backlog=_BACKLOG, start_serving=False)
        for bound in sockets
    ]
    host, port = sockets[0].getsockname()[:2]
    return OpenListener(
        listener,
        listener.host or host,
        port,
        sockets,
        servers,
        tls,
        None if moved is None else f"port {listener.port} is taken by another program",
    )


async def serve(opened: OpenListener) -> None:
    """Accept clients."""
    ports.prepare(opened.sockets)
    try:
        for server in opened.servers:
            await server.start_serving()
    except OSError as error:
        raise _refused(opened.listener, opened.port, error) from None


def _refused(listener: ListenerSettings, port: int, error: OSError) -> ConfigError:
    return ConfigError(
        f"cannot listen on {listener.host or 'any address'}, port {port} ({listener.kind}): "
        f"{ports.explain(error)}",
        hint=ports.advice(listener.kind) if ports.is_about_port(error) else None,
    )


def connection_factory(
    server: BrokerServer, listener: ListenerSettings, tls: TlsContext | None
) -> Callable[[], asyncio.Protocol]:
    kind = WebSocketConnection if listener.kind in WEBSOCKET_KINDS else ClientConnection
    if tls is None:
        return lambda: kind(server, listener)
    return lambda: TlsProtocol(server, listener, tls, lambda: kind(server, listener))


def tls_context(listener: ListenerSettings) -> ssl.SSLContext:
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


def renew(opened: OpenListener, context: ssl.SSLContext) -> None:
    """Use this certificate and these client authorities for new connections."""
    assert opened.tls is not None
    opened.tls.context = context


def _tls_reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return (error.strerror or str(error)).lower()
