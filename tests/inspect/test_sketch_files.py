"""`dovetail sketch` as a shell sees it: good files, bad files, and no incomplete ones."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

from dovetail.cli import main
from dovetail.topics.sketches import METHODS, build_sketch, sketch_to_bytes
from dovetail.topics.topic_column import TopicColumn


@dataclass
class Done:
    """The result of a command."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object, given: bytes = b"") -> Done:
    """The command line, in this process: Numba's import would be most of a new one's life."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["dovetail", "sketch", *map(str, arguments)]),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given))),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return Done(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def refusal(done: Done) -> str:
    """Return the one or two lines of an error."""
    assert done.returncode == 2
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert 1 <= len(lines) <= 2
    assert lines[0].startswith("dovetail: error: ")
    return "\n".join(lines)


@pytest.mark.parametrize("method", METHODS)
def test_a_sketch_is_built_looked_at_and_searched(method: str, tmp_path: Path) -> None:
    filters = tmp_path / "filters.txt"
    filters.write_text("building3/+/temperature\n\n$share/g/alarm/#\r\né/日本\n")
    file = tmp_path / "a sketch"
    built = run("build", filters, "--out", file, "--method", method)
    assert built.returncode == 0, built.stderr
    assert "filters          3," in built.stdout
    assert method in run("info", file).stdout
    topics = ["building3/room1/temperature", "alarm", "é/日本", "x/y"]
    for done in (
        run("search", file, *topics),
        run("search", file, "-", given="\n".join(topics).encode()),
    ):
        answers = [line.split()[0] for line in done.stdout.splitlines()]
        assert answers == ["maybe", "maybe", "maybe", "no"]


def test_a_bad_filter_is_named_with_its_line(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("build", "-", "--out", out, given=b"a/b\na/#/c\n")
    assert "-, line 2: topic filter b'a/#/c': '#' must be the last level" in refusal(done)
    assert "UTF-8" in refusal(run("build", "-", "--out", out, given=b"\xff\n"))
    assert "65,535" in refusal(run("build", "-", "--out", out, given=b"a" * 1_000_000))
    assert "no filters" in refusal(run("build", "-", "--out", out, given=b"\n\n"))
    assert "wildcard" in refusal(_with_sketch(tmp_path, "search", "a/+"))
    assert list(tmp_path.glob("*out*")) == []


def test_files_that_are_not_there_or_not_writable(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert "No such file" in refusal(run("build", missing, "--out", tmp_path / "out"))
    assert "No such file" in refusal(run("info", missing))
    assert "Is a directory" in refusal(run("info", tmp_path))
    nowhere = tmp_path / "no folder" / "out"
    assert "cannot write" in refusal(run("build", "-", "--out", nowhere, given=b"a\n"))


def test_a_full_disk_leaves_the_old_sketch_alone(tmp_path: Path) -> None:
    done = run("build", "-", "--out", "/dev/full/x", given=b"a\n")
    assert "cannot write" in refusal(done)
    file = tmp_path / "kept"
    run("build", "-", "--out", file, given=b"a\n")
    before = file.read_bytes()
    many = "\n".join(f"topic/{i}" for i in range(50_000)).encode()
    command = [sys.executable, "-m", "dovetail", "sketch", "build", "-", "--out", str(file)]
    # No file may grow past 512 bytes: the same error as a full disk, from a real file system.
    limited = subprocess.run(
        ["sh", "-c", 'ulimit -f 1; trap "" XFSZ; exec "$@"', "sh", *command],
        input=many,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert "cannot write" in refusal(
        Done(limited.returncode, limited.stdout.decode(), limited.stderr.decode())
    )
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_damaged_sketches_are_refused(tmp_path: Path) -> None:
    data = sketch_to_bytes(build_sketch("lines", TopicColumn.of(["a/b"])))
    file = tmp_path / "sketch"
    for damaged, reason in (
        (data[:-1], "cut short"),
        (data[:50] + b"?" + data[51:], "damaged"),
        (data[:4] + b"\7\0" + data[6:], "format 7"),
        (b"", "cut short"),
        (b"not a sketch at all", "no sketch"),
    ):
        file.write_bytes(damaged)
        message = refusal(run("search", file, "a/b"))
        assert reason in message
        assert str(file) in message


def test_bad_options(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for options, reason in (
        (["--method", "bloom"], "bf, bfp, prefix, lines"),
        (["--false-positive-rate", "0"], "false-positive rate"),
        (["--false-positive-rate", "nan"], "false-positive rate"),
    ):
        assert reason in refusal(run("build", "-", "--out", out, *options, given=b"a\n"))


def _with_sketch(tmp_path: Path, *arguments: str) -> Done:
    file = tmp_path / "sketch"
    run("build", "-", "--out", file, given=b"a\n")
    return run(arguments[0], file, *arguments[1:])


def test_devices_are_read_no_further_than_a_sketch_goes() -> None:
    assert "no sketch" in refusal(run("info", "/dev/zero"))
    assert "cut short" in refusal(run("info", "/dev/null"))


def test_what_is_not_a_file_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "not a file" in refusal(run("build", "-", "--out", pipe, given=b"a\n"))
    assert pipe.is_fifo()
    target, link = tmp_path / "target", tmp_path / "link"
    target.touch(mode=0o600)
    link.symlink_to(target)
    assert run("build", "-", "--out", link, given=b"a\n").returncode == 0
    assert link.is_symlink()
    assert target.stat().st_size > 0
    assert target.stat().st_mode & 0o777 == 0o600


def test_files_of_editors_that_mark_the_byte_order(tmp_path: Path) -> None:
    file = tmp_path / "sketch"
    run("build", "-", "--out", file, given=b"\xef\xbb\xbfa/b\n")
    assert run("search", file, "a/b").stdout.startswith("maybe")
    mixed = run("search", file, "a/b", "-", "a/c", given=b"x\ny\n").stdout.splitlines()
    assert [line.split()[-1] for line in mixed] == ["a/b", "x", "y", "a/c"]


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "sketch"
    run("build", "-", "--out", file, given=b"a\n")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dovetail", "sketch", "info", str(file)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "dovetail: error: cannot write to standard output: [Errno 28] No space left on device"
    ]
