"""Copies of the project for tests that install it."""

import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[3]
COMMAND_PACKAGES = frozenset(
    {
        "annotated-doc",
        "annotated-types",
        "click",
        "markdown-it-py",
        "mdurl",
        "pydantic",
        "pydantic-core",
        "pygments",
        "rich",
        "shellingham",
        "typer",
        "typing-extensions",
        "typing-inspection",
    }
)
"""The packages that `dovetail --version` imports."""


def copy_checkout(to: Path) -> Path:
    """Copy the files of a `git clone` that the launcher needs."""
    to.mkdir(parents=True)
    for name in ("dovetail", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, to)
    for name in ("requirements", "scripts", "src"):
        shutil.copytree(
            ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__", "*.nb[ci]")
        )
    return to


def only_packages(lock: str, names: frozenset[str]) -> str:
    """Return a lock with few of its packages, which install in seconds."""
    entries = re.split(r"^(?=\S)", lock, flags=re.MULTILINE)
    return "".join(entry for entry in entries if entry.partition("==")[0] in names)


def programs_without(folder: Path, *prefixes: str) -> str:
    """Return a PATH with all programs of the current one, except names with these prefixes."""
    folder.mkdir()
    for source in os.environ["PATH"].split(os.pathsep):
        # A PATH inherited from root has folders that other users may not read.
        if not os.access(source, os.R_OK | os.X_OK):
            continue
        for program in Path(source).glob("*"):
            link = folder / program.name
            if not program.name.startswith(prefixes) and not os.path.lexists(link):
                link.symlink_to(program)
    return str(folder)
