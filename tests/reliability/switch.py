"""The links between brokers: a process that passes packets from one TUN device to another.

usage: switch.py SEED FD=ADDRESS...

Each device is in a broker's network namespace, and this process inherits its descriptor. A line of
JSON on standard input lists all wires with faults; the switch answers it with an empty line. The
end of standard input ends the process.

The switch makes the faults itself, because many kernels lack parts of traffic control.
"""

import contextlib
import heapq
import json
import os
import selectors
import sys
import time
from random import Random

from reliability.wire import Wire, refusal, target

PACKET_BYTES_MAX = 65_536
WAITING_PACKETS_MAX = 50_000


class Switch:
    def __init__(self, seed: int, devices: dict[bytes, int]) -> None:
        """Take the descriptors of `devices` by address."""
        self._random = Random(seed)
        self._devices = devices
        self._addresses = {descriptor: address for address, descriptor in devices.items()}
        self._wires: dict[tuple[bytes, bytes], Wire] = {}
        self._waiting: list[tuple[float, int, int, bytes]] = []
        """A heap of delayed packets: time, number, descriptor and bytes."""
        self._count = 0

    def change(self, wires: list[dict[str, object]]) -> None:
        """Replace all faults."""
        self._wires = {}
        for fields in wires:
            origin, destination = (_address(str(fields.pop(key))) for key in ("origin", "target"))
            self._wires[origin, destination] = Wire(**fields)  # type: ignore[arg-type]

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for descriptor in self._addresses:
                os.set_blocking(descriptor, False)
                selector.register(descriptor, selectors.EVENT_READ)
            selector.register(sys.stdin, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(self._seconds_to_wait()):
                    if key.fd in self._addresses:
                        self._read(key.fd)
                    elif line := sys.stdin.readline():
                        self.change(json.loads(line))
                        print(flush=True)
                    else:
                        return
                self._deliver()

    def _seconds_to_wait(self) -> float | None:
        return max(self._waiting[0][0] - time.monotonic(), 0) if self._waiting else None

    def _read(self, descriptor: int) -> None:
        try:
            packet = os.read(descriptor, PACKET_BYTES_MAX)
        except BlockingIOError:
            return
        destination = target(packet)
        if destination not in self._devices:
            return
        wire = self._wires.get((self._addresses[descriptor], destination))
        if wire is None:
            self._write(self._devices[destination], packet)
        elif wire.is_reset:
            answer = refusal(packet)
            if answer is not None:
                self._write(descriptor, answer)
        else:
            self._put(wire, self._devices[destination], packet)

    def _put(self, wire: Wire, descriptor: int, packet: bytes) -> None:
        at = wire.arrival(time.monotonic(), len(packet), self._random.random())
        if at is not None and len(self._waiting) < WAITING_PACKETS_MAX:
            self._count += 1
            heapq.heappush(self._waiting, (at, self._count, descriptor, packet))

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, descriptor, packet = heapq.heappop(self._waiting)
            self._write(descriptor, packet)

    @staticmethod
    def _write(descriptor: int, packet: bytes) -> None:
        with contextlib.suppress(OSError):  # its queue is full: TCP sends it again
            os.write(descriptor, packet)


def _address(text: str) -> bytes:
    return bytes(map(int, text.split(".")))


def main(seed: str, *devices: str) -> None:
    by_address = {}
    for device in devices:
        descriptor, _, address = device.partition("=")
        by_address[_address(address)] = int(descriptor)
    Switch(int(seed), by_address).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
