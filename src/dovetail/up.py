"""`dovetail up`: from options and a configuration file to a running node and its first words."""

import os
from pathlib import Path

import msgspec

from dovetail import __version__
from dovetail.broker.listeners import Listening
from dovetail.errors import ConfigError
from dovetail.node import Node, run_node
from dovetail.settings import Settings, load_settings

_KINDS = {
    "tcp": "MQTT",
    "tls": "MQTT, TLS",
    "websocket": "WebSocket",
    "secure-websocket": "WebSocket",
}
_DURABILITY = {
    "process": "survives a crash of the process",
    "power": "survives a power failure",
}


def up(
    *,
    config: Path | None,
    host: str | None,
    port: int | None,
    data: Path | None,
    quiet: bool,
) -> None:
    """Run a node until it is told to stop."""
    settings = with_options(load_settings(config), host=host, port=port, data=data)
    run_node(
        settings,
        config_file=config,
        movable=movable(config, port),
        announce=None if quiet else announce,
    )


def movable(config: Path | None, port: int | None) -> frozenset[str]:
    """Who chose a port wants that one; who did not wants a broker."""
    if config is not None:
        return frozenset()
    return frozenset({"websocket", "http"} if port is not None else {"tcp", "websocket", "http"})


def with_options(
    settings: Settings, *, host: str | None, port: int | None, data: Path | None
) -> Settings:
    """What the command line says counts more than what the file says."""
    listeners = list(settings.listeners)
    if host is not None or port is not None:
        at = next((i for i, one in enumerate(listeners) if one.kind == "tcp"), None)
        if at is None:
            raise ConfigError(
                "--host and --port are those of the tcp listener, and the configuration has none.",
                hint="Change the listener there.",
            )
        plain = listeners[at]
        listeners[at] = msgspec.structs.replace(
            plain,
            host=plain.host if host is None else host,
            port=plain.port if port is None else port,
        )
        if host is not None:
            listeners = [
                msgspec.structs.replace(one, host=host) if one.kind == "websocket" else one
                for one in listeners
            ]
    changed = msgspec.structs.replace(settings, listeners=tuple(listeners))
    return changed if data is None else msgspec.structs.replace(changed, data=str(data))


def announce(node: Node) -> None:
    lines = [f"Dovetail {__version__} is up, as node {node.name}."]
    for listening in node.listening:
        kind = _KINDS[listening.listener.kind]
        why = f"  ({listening.moved_because})" if listening.moved_because else ""
        lines.append(f"  {kind:10} {listening.address}{why}")
    if node.http_address is not None:
        host, port = node.http_address
        lines.append(f"  {'HTTP':10} http://{host}:{port} (/metrics, /healthz)")
    settings = node.settings
    lines.append(
        f"  {'data':10} {Path(settings.data).absolute()} ({_DURABILITY[settings.durability]})"
    )
    plain = next((one for one in node.listening if one.listener.kind == "tcp"), None)
    if plain is not None:
        lines.append(try_line(plain))
    lines.append("Ctrl-C stops it.")
    print("\n".join(lines), flush=True)


def try_line(listening: Listening) -> str:
    # The launcher of a checkout says under which name it was called.
    program = os.environ.get("DOVETAIL_COMMAND", "dovetail")
    port = "" if listening.port == 1883 else f" --port {listening.port}"
    return (
        f"Try:  {program} sub{port} 'hello/#'   and, in another terminal:   "
        f"{program} pub{port} hello/world 'Hi there'"
    )
