"""`dovetail config` as a process."""

import subprocess
import sys
from pathlib import Path

from dovetail.broker.auth.passwords import set_password
from dovetail.settings import explain


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dovetail", "config", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_explain_and_check_go_together(tmp_path: Path) -> None:
    explained = run("--explain")
    assert (explained.returncode, explained.stdout) == (0, explain())
    file = tmp_path / "dovetail.toml"
    file.write_text(explained.stdout)
    checked = run("--check", str(file))
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, f"{file}: ok\n", "")


def test_a_faulty_file(tmp_path: Path) -> None:
    file = tmp_path / "dovetail.toml"
    file.write_text("[mqtt]\nqos_max = 1\n[log]\nlevel = 3\n")
    done = run("--check", str(file))
    assert done.returncode == 2
    assert done.stderr.startswith(f"dovetail: error: {file}:2: mqtt.qos_max: there is no such ")
    assert f"\n{file}:4: log.level: 3 will not do" in done.stderr
    assert "Traceback" not in done.stderr


def test_files_that_settings_name_are_checked_too(tmp_path: Path) -> None:
    file, users = tmp_path / "dovetail.toml", tmp_path / "users"
    file.write_text("[access]\npassword_file = 'users'\n")
    assert f"cannot read {users}" in run("--check", str(file)).stderr
    users.write_text("ann\n")
    assert f"{users}:1: it takes user:hash" in run("--check", str(file)).stderr
    users.unlink()
    set_password(users, "ann", b"secret")
    assert run("--check", str(file)).returncode == 0


def test_one_of_the_two_options_is_required(tmp_path: Path) -> None:
    for arguments in ([], ["--explain", "--check", str(tmp_path)]):
        done = run(*arguments)
        assert done.returncode == 2
        assert "either --explain or --check FILE" in done.stderr
