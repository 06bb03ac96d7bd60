"""Files of subscriptions, and how changes are noticed."""

import os
from pathlib import Path

import pytest

from dovetail.errors import ConfigError
from dovetail.pipeline.stream.subscription_sources import stamps


def test_files_are_known_by_their_times_and_sizes(tmp_path: Path) -> None:
    file = tmp_path / "s.csv"
    file.write_text("id,filter\n")
    before = stamps([file])
    assert stamps([file]) == before
    os.utime(file, ns=(1, 1))
    assert stamps([file]) != before
    file.unlink()
    with pytest.raises(ConfigError, match=r"s\.csv has gone"):
        stamps([file])
