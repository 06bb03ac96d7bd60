"""Finds other programs that tests run, and skips tests without them.

A test without its server is skipped on a developer's machine. In continuous integration (`CI` is
set) it fails, so that it cannot be skipped for ever. `scripts/servers.sh` installs the programs.
"""

import os
import shutil
from pathlib import Path

import pytest

# Servers are often installed in folders of root's PATH.
_MORE_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin")


def find_program(name: str) -> Path | None:
    found = shutil.which(name, path=os.pathsep.join((*os.get_exec_path(), *_MORE_FOLDERS)))
    return None if found is None else Path(found)


def in_continuous_integration() -> bool:
    return bool(os.environ.get("CI"))


def program(name: str) -> Path:
    """Return the path of a program. Without it the test is skipped, or fails in CI."""
    found = find_program(name)
    if found is None:
        reason = f"{name} is not installed (scripts/test without arguments installs it, as root)"
        if in_continuous_integration():
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return found


def needs(*names: str) -> pytest.MarkDecorator:
    """Mark tests that need these programs. In continuous integration they run and fail."""
    missing = [name for name in names if find_program(name) is None]
    return pytest.mark.skipif(
        bool(missing) and not in_continuous_integration(),
        reason=f"not installed: {', '.join(missing)} (see scripts/servers.sh)",
    )


needs_mosquitto = needs("mosquitto", "mosquitto_sub")
