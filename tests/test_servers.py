"""scripts/servers.sh for a user who may not install anything; and how tests find programs."""

import os
import subprocess
from pathlib import Path

import pytest

from support.processes.checkout import ROOT
from support.processes.servers import find_program, needs, program

NOBODY = 65534
THERE = "sh:dash:nothing"
MISSING = "dovetail-no-such-program:no-such-package:tests_of_nothing"


def ensure_servers(*servers: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "CI"}
    # Its text, as that user may not be able to read the checkout.
    script = (ROOT / "scripts" / "servers.sh").read_text()
    script += '\nservers=$1; ensure_servers; echo "[$skipped]"'
    return subprocess.run(
        ["/bin/sh", "-u", "-c", script, "scripts/test", "\n".join(servers)],
        cwd="/",
        env=inherited | environment,
        user=NOBODY if os.geteuid() == 0 else None,
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_is_silent_when_all_programs_exist() -> None:
    done = ensure_servers(THERE, THERE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_skipped_tests_are_announced() -> None:
    done = ensure_servers(THERE, MISSING)
    assert (done.returncode, done.stdout) == (0, "[tests of nothing]\n")
    assert "WARNING: not installed: dovetail-no-such-program\n" in done.stderr
    assert "WILL BE SKIPPED: tests of nothing." in done.stderr


def test_nothing_is_skipped_in_continuous_integration() -> None:
    assert ensure_servers(THERE, CI="true").returncode == 0
    done = ensure_servers(MISSING, CI="true")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: not installed: dovetail-no-such-program." in done.stderr


def test_programs_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "dovetail-own-program"
    own.write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program(own.name) is None  # not executable
    own.chmod(0o755)
    assert find_program(own.name) == own == program(own.name)


def test_a_missing_program_skips_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "dovetail-no-such-program"
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=name):
        program(name)
    assert needs(name).mark.args == (True,)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=name):
        program(name)
    assert needs(name).mark.args == (False,)
