"""Measures starts: a warm `./dovetail`, `up` to its first client, a first start in a clone.

The last is what a new user does: `git clone` of the committed state, `./dovetail up`, an MQTT
client. It does not use pip's cache.
"""

import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from _measure import finish, in_turn, table, verdict

ROUNDS = 15
ROOT = Path(__file__).parent.parent
LAUNCHER = ROOT / "dovetail"
ADDED_SECONDS_MAX = 0.3
FIRST_SECONDS_MAX = 35
FIRST_MB_MAX = 250
_SIZE = re.compile(r"^ *Downloading .*\(([\d.]+) (kB|MB)\)$", re.MULTILINE)
CONNECT = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00"


def main() -> None:
    def run(*command: str) -> None:
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    seconds = in_turn(
        {
            "python -c pass": lambda: run(sys.executable, "-c", "pass"),
            "./dovetail --version": lambda: run(str(LAUNCHER), "--version"),
            "./dovetail --help": lambda: run(str(LAUNCHER), "--help"),
            "./dovetail up, to the first CONNACK": serve_one_client,
        },
        ROUNDS,
    )
    medians = {name: sorted(values)[ROUNDS // 2] for name, values in seconds.items()}
    table(
        f"Seconds to start; medians of {ROUNDS} rounds",
        ["command", "s"],
        [[name, f"{value:.3f}"] for name, value in medians.items()],
    )
    added = medians["./dovetail --version"] - medians["python -c pass"]
    verdict("seconds that a warm start adds", added, ADDED_SECONDS_MAX, at_most=True)
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "dovetail"
        run("git", "clone", "--quiet", str(ROOT), str(clone))
        first = seconds_until_served(clone)
        log = (clone / ".venv" / "dovetail-setup" / "log").read_text()
    megabytes = sum(
        float(size) / (1_000 if unit == "kB" else 1) for size, unit in _SIZE.findall(log)
    )
    print("\nThe first start in a clone")
    verdict("seconds until a client is served", first, FIRST_SECONDS_MAX, at_most=True)
    verdict("MB that are downloaded", megabytes, FIRST_MB_MAX, at_most=True)


def seconds_until_served(clone: Path) -> float:
    """Return the seconds from `./dovetail up` to the first client, and end the broker."""
    environment = {**os.environ, "PIP_NO_CACHE_DIR": "1", "XDG_CACHE_HOME": str(clone / ".cache")}
    started = time.perf_counter()
    with subprocess.Popen(
        [clone / "dovetail", "up", "--port", "0"],
        cwd=clone,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as broker:
        assert broker.stdout is not None
        places = (re.match(r" +MQTT +(\S+):(\d+)", line) for line in broker.stdout)
        place = next(place for place in places if place is not None)
        client = Client(CallbackAPIVersion.VERSION2)
        client.connect(place[1], int(place[2]))
        client.publish("hello", "world", qos=1)
        while not client.is_connected() or client.want_write():
            client.loop()
        seconds = time.perf_counter() - started
        client.disconnect()
        broker.terminate()
    return seconds


def serve_one_client() -> None:
    """Start a broker, wait for its first CONNACK, and kill it."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the broker's, too
        address = reserved.getsockname()
        options = ("up", "--quiet", "--port", str(address[1]), "--data", folder)
        with subprocess.Popen([str(LAUNCHER), *options], cwd=folder) as broker:
            try:
                while True:
                    with (
                        contextlib.suppress(ConnectionRefusedError),
                        socket.create_connection(address) as client,
                    ):
                        client.sendall(CONNECT)
                        assert client.recv(4) == b"\x20\x02\x00\x00"
                        break
            finally:
                broker.kill()


if __name__ == "__main__":
    main()
    finish()
