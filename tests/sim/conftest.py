"""Odd seeds let brokers scan every read, so that publications go from broker to broker in runs.

With even seeds only long reads are scanned, and most publications travel one by one.
"""

import pytest

from dovetail.broker import packet_reader


@pytest.fixture(autouse=True)
def _scanned(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and callspec.params.get("seed", 0) % 2:
        monkeypatch.setattr(packet_reader, "SCAN_BYTES_MIN", 1)
