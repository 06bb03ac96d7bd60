"""`dovetail pub` and `dovetail sub` as a shell sees them, in this process or in their own."""

import io
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr
from dataclasses import dataclass
from unittest.mock import patch

import pytest

from dovetail.cli import main


@dataclass
class Done:
    """What a command left behind."""

    returncode: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        """The output of a command that has to succeed."""
        assert (self.returncode, self.errors) == (0, "")
        return self.output.decode()


def run(*arguments: object, given: bytes = b"") -> Done:
    """In this process. Standard input is a file, with its own number."""
    output, errors = io.BytesIO(), io.StringIO()
    stdout = io.TextIOWrapper(output, write_through=True)
    with tempfile.TemporaryFile() as file:
        file.write(given)
        file.seek(0)
        with (
            patch.object(sys, "argv", ["dovetail", *map(str, arguments)]),
            patch.object(sys, "stdin", io.TextIOWrapper(file)),
            patch.object(sys, "stdout", stdout),
            redirect_stderr(errors),
            pytest.raises(SystemExit) as ended,
        ):
            main()
        return Done(int(ended.value.code or 0), output.getvalue(), errors.getvalue())


def refusal(done: Done) -> str:
    """The one or two lines of an error that a user can read."""
    assert done.returncode == 2, done
    assert done.output == b""
    lines = done.errors.splitlines()
    assert 1 <= len(lines) <= 2
    assert lines[0].startswith("dovetail: error: ")
    return done.errors.removeprefix("dovetail: error: ")


def start(*arguments: object) -> "subprocess.Popen[str]":
    """In a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "dovetail", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
