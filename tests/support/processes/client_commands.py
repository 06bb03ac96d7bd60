"""Runs `dovetail pub` and `dovetail sub`, in this process or in their own."""

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
class CommandResult:
    """The exit code and the output of a command."""

    returncode: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        """Return the output; the command must have succeeded."""
        assert (self.returncode, self.errors) == (0, "")
        return self.output.decode()


def run(*arguments: object, given: bytes = b"") -> CommandResult:
    """Run a command in this process. Standard input is a file with its own descriptor."""
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
        return CommandResult(int(ended.value.code or 0), output.getvalue(), errors.getvalue())


def refusal(result: CommandResult) -> str:
    """Return the error of a command: one or two lines, without a traceback."""
    assert result.returncode == 2, result
    assert result.output == b""
    lines = result.errors.splitlines()
    assert 1 <= len(lines) <= 2
    assert lines[0].startswith("dovetail: error: ")
    return result.errors.removeprefix("dovetail: error: ")


def start(*arguments: object) -> "subprocess.Popen[str]":
    """Start a command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "dovetail", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
