"""`dovetail up` in a process of its own, for tests that need the whole of it.

It listens on a free port of this machine, and has said so before a test goes on.
"""

import re
import subprocess
import sys
from pathlib import Path
from types import TracebackType

import pytest

_WAIT_SECONDS = 30
_ADDRESS = re.compile(r"^ +MQTT +127\.0\.0\.1:(\d+)", re.MULTILINE)
_CONFIGURATION = """
data = "data"
listeners = [{ kind = "tcp", port = 0 }]
http.enabled = false
"""


class LiveBroker:
    """Keeps its data in `folder`/data. `configuration` is TOML that its file has besides."""

    def __init__(self, folder: Path, configuration: str = "") -> None:
        self.data = folder / "data"
        self.port = 0
        self._config = folder / "dovetail.toml"
        self._config.write_text(_CONFIGURATION + configuration)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "LiveBroker":
        command = [sys.executable, "-m", "dovetail", "up", "--config", str(self._config)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        said = ""
        for line in self._process.stdout:  # ends with the process, at the latest
            said += line
            if line.startswith("Ctrl-C"):
                break
        found = _ADDRESS.search(said)
        if found is None:
            _, errors = self._process.communicate(timeout=_WAIT_SECONDS)
            pytest.fail(f"the broker did not start:\n{said}{errors}")
        self.port = int(found[1])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """SIGTERM; a broker that does not end by it, and well, is a failure of its own."""
        assert self._process is not None
        self._process.terminate()
        _, errors = self._process.communicate(timeout=_WAIT_SECONDS)
        assert self._process.returncode == 0, errors
