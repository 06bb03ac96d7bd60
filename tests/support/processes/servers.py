"""Programs of others that tests run: where they are, and what happens without them.

A test without its server is skipped where people develop and fails in continuous integration (`CI`
is set): what is never skipped there cannot rot. `scripts/servers.sh` installs them.
"""

import os
import shutil
from pathlib import Path

import pytest

# Servers are often installed where only root looks.
_MORE_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin")


def find_program(name: str) -> Path | None:
    found = shutil.which(name, path=os.pathsep.join((*os.get_exec_path(), *_MORE_FOLDERS)))
    return None if found is None else Path(found)


def in_continuous_integration() -> bool:
    return bool(os.environ.get("CI"))


def program(name: str) -> Path:
    """Where it is; otherwise ends the test, as skipped or, in continuous integration, failed."""
    found = find_program(name)
    if found is None:
        reason = f"{name} is not installed (scripts/test without arguments installs it, as root)"
        if in_continuous_integration():
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return found


def needs(*names: str) -> pytest.MarkDecorator:
    """For tests, classes and `pytestmark`. In continuous integration the test runs and fails."""
    missing = [name for name in names if find_program(name) is None]
    return pytest.mark.skipif(
        bool(missing) and not in_continuous_integration(),
        reason=f"not installed: {', '.join(missing)} (see scripts/servers.sh)",
    )


needs_mosquitto = needs("mosquitto", "mosquitto_sub")
