"""A network of its own for each broker: Linux network namespaces, which this tool makes itself.

    tool's namespace                     a broker's namespace
      c-NAME  10.77.N.1 ---- veth ------- clients  10.77.N.2    clients and HTTP
      switch (a process) --- TUN -------- links    10.78.0.N    other brokers

The tool runs in namespaces of its own (`enter`), so that the machine's network and file systems
stay as they are, and the kernel takes everything away when the tool ends, however it ends. This
needs root, or user namespaces for everybody, and the programs `unshare`, `nsenter` and `ip`.
"""

import asyncio
import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

from reliability.network import (
    CUT,
    DELAY,
    LINK_PORT,
    LOSS,
    ONE_WAY,
    RESET,
    SLOW,
    NetworkError,
)

INSIDE = "DOVETAIL_SOAK_INSIDE"
"""This environment variable is set when the tool runs in namespaces of its own."""

NOT_ALLOWED = "network namespaces are not allowed here"
"""The reason starts with this when the programs exist but privileges are missing."""

_PROGRAMS = ("unshare", "nsenter", "ip", "mount")
_TRIAL_SECONDS_MAX = 30.0
_TUN = "/dev/net/tun"
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_SWITCH = Path(__file__).with_name("switch.py")


def is_inside() -> bool:
    return INSIDE in os.environ


def enter(arguments: Sequence[str]) -> None:
    """Restart this program in namespaces of its own. Raise a NetworkError if that is impossible."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        raise NetworkError(f"there is no program {missing[0]} (iproute2 and util-linux have them)")
    prefix = ["unshare", "--net", "--mount"]
    if os.geteuid():
        prefix += ["--user", "--map-root-user"]
    command = [*prefix, sys.executable, "-m"]
    trial = subprocess.run(
        [*command, "reliability.namespaces"],
        capture_output=True,
        text=True,
        timeout=_TRIAL_SECONDS_MAX,
        check=False,
    )
    if trial.returncode:
        reason = trial.stderr.strip().splitlines()[-1] if trial.stderr else "no reason"
        raise NetworkError(f"{NOT_ALLOWED}: {reason}")
    inside = {**os.environ, INSIDE: "1"}
    os.execvpe(command[0], [*command, "reliability", *arguments], inside)  # noqa: S606


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetworkError(f"{' '.join(command)}: {done.stderr.strip()}")


class Namespaces:
    name = "network namespaces"
    kinds = (CUT, ONE_WAY, RESET, DELAY, LOSS, SLOW)

    def __init__(self, nodes: Sequence[str], seed: int) -> None:
        self._numbers = {node: number for number, node in enumerate(nodes, 1)}
        _run("mount", "-t", "tmpfs", "tmpfs", "/run")  # `ip netns` keeps its names there
        _run("ip", "link", "set", "lo", "up")
        devices = [self._make(node) for node in nodes]
        self._switch = subprocess.Popen(
            [
                sys.executable,
                str(_SWITCH),
                str(seed),
                *(f"{one}={self.link(node)[0]}" for one, node in zip(devices, nodes, strict=True)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=devices,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
            start_new_session=True,
        )
        for device in devices:
            os.close(device)
        self._change([])

    def _make(self, node: str) -> int:
        """Return the descriptor of the device that leads to other brokers."""
        number = self._numbers[node]
        inner = ("ip", "-n", node)
        _run("ip", "netns", "add", node)
        _run(*inner, "link", "set", "lo", "up")
        veth = ("type", "veth", "peer", "name", "clients", "netns", node)
        _run("ip", "link", "add", f"c-{number}", *veth)
        _run("ip", "address", "add", f"10.77.{number}.1/30", "dev", f"c-{number}")
        _run("ip", "link", "set", f"c-{number}", "up")
        _run(*inner, "address", "add", f"{self.host(node)}/30", "dev", "clients")
        _run(*inner, "link", "set", "clients", "up")
        device = _open_tun(f"l-{number}")
        _run("ip", "link", "set", f"l-{number}", "netns", node)
        _run(*inner, "address", "add", f"{self.link(node)[0]}/24", "dev", f"l-{number}")
        _run(*inner, "link", "set", f"l-{number}", "up")
        return device

    def host(self, node: str) -> str:
        return f"10.77.{self._numbers[node]}.2"

    def link(self, node: str) -> tuple[str, int]:
        return f"10.78.0.{self._numbers[node]}", LINK_PORT

    def advertised(self, node: str) -> tuple[str, int]:
        return self.link(node)

    def command(self, node: str) -> Sequence[str]:
        return "nsenter", f"--net=/run/netns/{node}"

    async def disturb(self, kind: str, nodes: Sequence[str], amount: float) -> None:
        fields_of_wires: dict[str, dict[str, object]] = {
            CUT: {"is_cut": True},
            ONE_WAY: {"is_cut": True},
            RESET: {"is_reset": True},
            DELAY: {"delay_seconds": amount / 1_000},
            LOSS: {"loss": amount / 100},
            SLOW: {"bytes_per_second": amount * 1_000 / 8},
        }
        wires = [
            {"origin": self.link(origin)[0], "target": self.link(other)[0]} | fields_of_wires[kind]
            for origin, other in self._pairs(nodes)
            if kind != ONE_WAY or origin == nodes[0]
        ]
        await asyncio.to_thread(self._change, wires)

    def _pairs(self, nodes: Sequence[str]) -> list[tuple[str, str]]:
        """Return the disturbed directions: of one node and all others, or of two nodes."""
        if len(nodes) == 1:
            return [pair for pair in permutations(self._numbers, 2) if nodes[0] in pair]
        return list(permutations(nodes, 2))

    async def heal(self) -> None:
        await asyncio.to_thread(self._change, [])

    def _change(self, wires: Sequence[object]) -> None:
        """Set the faults of all wires, and return when they are active."""
        assert self._switch.stdin is not None
        assert self._switch.stdout is not None
        try:
            self._switch.stdin.write(json.dumps(wires).encode() + b"\n")
            self._switch.stdin.flush()
            if not self._switch.stdout.readline():
                raise NetworkError("the switch between brokers has ended")
        except BrokenPipeError:
            raise NetworkError("the switch between brokers has ended") from None

    async def close(self) -> None:
        assert self._switch.stdin is not None
        self._switch.stdin.close()
        await asyncio.to_thread(self._switch.wait)


def _open_tun(name: str) -> int:
    """Make a TUN device, and return its descriptor, which stays when the device moves."""
    try:
        descriptor = os.open(_TUN, os.O_RDWR | os.O_CLOEXEC)
        request = struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI)
        fcntl.ioctl(descriptor, _TUNSETIFF, request)
    except OSError as error:
        raise NetworkError(f"cannot make a TUN device: {error}") from None
    return descriptor


def main() -> int:
    """Try to make namespaces; return the exit code."""
    try:
        asyncio.run(Namespaces(("one", "two"), 0).close())
    except NetworkError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
