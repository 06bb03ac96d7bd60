"""A terminal shows remote text and never executes it: `printable`, and each command that prints."""

import contextlib
import io
import json
import os
import pty
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from dovetail.api.reports import DrainReport, NodeEntry, PlanReport, PlanRequest
from dovetail.inspect import drain, plan_move
from dovetail.process.terminal import console, moving_line, printable, printable_json, say
from support.brokers.web_views import MATCHER, cluster, route, spaces
from support.brokers.wire_client import WireClient
from support.http_answers import Answers, answering
from support.processes.broker_process import WAIT_SECONDS, BrokerProcess
from support.processes.client_commands import run
from support.processes.scripted_server import ScriptedServer

HOSTILE = "\x1b]0;owned\x07\x9b2J\u202e[red]x[/]:skull:\r\nforged\u2028"
SHOWN = r"\x1b]0;owned\x07\x9b2J\u202e[red]x[/]:skull:\x0d\x0aforged\u2028"
_DIRECTIONS = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
_MARKS = {"ARABIC LETTER MARK", "LEFT-TO-RIGHT MARK", "RIGHT-TO-LEFT MARK"}


def unsafe(character: str) -> bool:
    """By Unicode's own tables."""
    return (
        unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}
        or unicodedata.bidirectional(character) in _DIRECTIONS
        or unicodedata.name(character, "") in _MARKS
    )


# The function -------------------------------------------------------------------------------------


@given(st.text(st.characters(), max_size=40))
def test_nothing_unsafe_is_left(text: str) -> None:
    shown = printable(text)
    assert not any(map(unsafe, shown))
    assert printable(shown) == shown
    shown.encode()  # there is an encoding for all of it


@given(st.text(st.characters(), max_size=40))
def test_what_is_kept_is_kept(text: str) -> None:
    kept = printable(text, keep="\n\t")
    assert [kept.count(one) for one in "\n\t"] == [text.count(one) for one in "\n\t"]
    assert kept.replace("\n", r"\x0a").replace("\t", r"\x09") == printable(text)


def test_every_character_of_unicode() -> None:
    every = map(chr, range(sys.maxunicode + 1))
    assert [ascii(one) for one in every if unsafe(one) != (printable(one) != one)] == []


def test_escapes_say_which_character_it_was() -> None:
    assert printable("\x1b\x9b\u202e\ud800") == r"\x1b\x9b\u202e\ud800"


@given(st.recursive(st.text(st.characters()), st.lists, max_leaves=5))
def test_json_keeps_its_meaning(document: object) -> None:
    text = printable_json(json.dumps(document, ensure_ascii=False, indent=2))
    assert not any(unsafe(one) for one in text if one != "\n")
    assert json.loads(text) == document


def test_lines_stay_lines(capsys: pytest.CaptureFixture[str]) -> None:
    say("a", HOSTILE, "b")
    assert capsys.readouterr().out == f"a\n{SHOWN}\nb\n"


def test_a_console_does_not_interpret_text() -> None:
    """Neither where we hand it text, nor in a table, nor in a line that moves."""
    shown = io.StringIO()
    screen = console(file=shown, width=400)
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE)
    screen.print(HOSTILE, table)
    with moving_line(screen, HOSTILE) as update:
        update(HOSTILE)
    text = shown.getvalue()
    assert text.count(r"\x1b]0;owned\x9b2J\u202e[red]x[/]:skull:") >= 4  # the bell is left out
    assert "\x1b" not in text
    assert "\x9b" not in text


# Commands that ask a broker -----------------------------------------------------------------------


def test_filters_of_a_remote_client(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, WireClient(broker.port, HOSTILE) as client:
        assert client.subscribe(f"a/{HOSTILE}", 1) == 1
        assert client.subscribe(f"$share/[bold]{HOSTILE}/a/#", 1) == 1
        url = f"http://127.0.0.1:{broker.port_of('http')}"
        asked = ("route", f"a/{HOSTILE}", "--url", url)
        text = on_terminal(*asked)
        assert f"      a/{SHOWN}  (1)" in text.splitlines()
        assert is_safe(text)
        done = run(*asked)
        assert is_safe(done.text)
        assert SHOWN in done.text
        assert is_safe(run(*asked, "--json").text)
        assert is_safe(run("status", "--once", "--url", url).text)


def test_messages_on_a_terminal_and_in_a_pipe(tmp_path: Path) -> None:
    payload = f"one\ntwo\t{HOSTILE}".encode()
    with BrokerProcess(tmp_path) as broker:
        with WireClient(broker.port) as client:
            client.publish(f"a/{HOSTILE}", payload, 1, retain=True)
        asked = ("sub", "a/#", "--port", broker.port, "--count", 1)
        # A program gets every byte as it came.
        assert run(*asked).output == payload + b"\n"
        assert run(*asked, "-v").output == f"a/{HOSTILE} ".encode() + payload + b"\n"
        assert run(*asked, "--format", "raw").output == payload
        text = on_terminal(*asked, "-v")
        assert text.startswith(f"a/{SHOWN} one\ntwo\t" + r"\x1b]0;owned\x07\x9b2J\u202e")
        assert is_safe(text.replace("\t", ""))
        told = json.loads(on_terminal(*asked, "--json"))
        assert (told["topic"], told["payload"]) == (f"a/{HOSTILE}", payload.decode())


def test_the_reason_of_a_refusal_by_a_server() -> None:
    words = f"no {HOSTILE}".encode()
    properties = b"\x1f" + len(words).to_bytes(2, "big") + words
    body = b"\x00\x87" + bytes([len(properties)]) + properties
    with ScriptedServer([b"\x20" + bytes([len(body)]) + body]) as server:
        done = run("pub", "--port", server.port, "a", "b")
    assert done.returncode == 2
    assert r"\x1b]0;owned\x07\x9b2J\u202e[red]x[/]:skull:" in done.errors
    assert is_safe(done.errors)


# Commands that ask whoever answers over HTTP ------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("route", "a/b"),
        ("route", "a/b", "--json"),
        ("spaces",),
        ("spaces", "--json"),
        ("status", "--once"),
        ("status", "--json"),
    ],
)
def test_reports_of_a_node(arguments: tuple[str, ...]) -> None:
    with hostile_node() as url:
        done = run(*arguments, "--url", url)
        assert is_safe(done.text)
        assert "owned" in done.text


def test_reports_of_a_node_on_a_terminal() -> None:
    with hostile_node() as url:
        for arguments in (("route", "a/b"), ("spaces",), ("status", "--once")):
            text = on_terminal(*arguments, "--url", url)
            # Rich has escape sequences of its own.
            assert "\x1b]0;" not in text
            assert "\x9b" not in text
            assert r"\x1b]0;owned\x07" in text


def test_a_refusal_of_a_node() -> None:
    with hostile_node(status=403) as url:
        for arguments in (("route", "a"), ("drain", "m")):
            done = run(*arguments, "--url", url)
            assert done.returncode == 2
            assert SHOWN.partition(r"\x0a")[0] in done.errors
            assert is_safe(done.errors)


def test_matchers_that_leave_and_move(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "_LOOK_SECONDS", 0.0)
    with hostile_node() as url:
        drain.drain(url, "gone")
        plan_move.apply(url, PlanRequest([]))
    text = capsys.readouterr().out
    assert text.count(SHOWN) >= 2
    assert is_safe(text)


@contextlib.contextmanager
def hostile_node(status: int = 200) -> Iterator[str]:
    """Whatever it is asked, names and words in its answers are hostile."""
    report = cluster()
    told = msgspec.structs.replace(
        report,
        nodes=(*report.nodes, NodeEntry("m", "", "alive", MATCHER, "matcher")),
    )
    pages: dict[str, msgspec.Struct] = {
        "/cluster": told,
        "/route": route("a/b"),
        "/spaces": spaces(),
        "/drain": DrainReport("m", "leaves", ("other",)),
        "/plan": PlanReport(1, {}, ("silent",)),
    }

    class Handler(Answers):
        def get(self) -> None:
            page = pages[self.path.partition("?")[0]]
            body = {"error": HOSTILE} if status != 200 else hostile(msgspec.to_builtins(page))
            self.say(status, json.dumps(body).encode())

        def post(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.get()

    with answering(Handler) as place:
        yield place


_WORDS = frozenset(
    {
        *("address", "along", "asked", "cluster", "dimension", "filter", "group", "name"),
        *("others", "policy", "silent", "space", "texts", "topic", "topics", "version"),
    }
)


def hostile(document: object, key: str = "") -> object:
    """All that a node may word as it likes."""
    if isinstance(document, dict):
        return {name: hostile(value, name) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [hostile(value, key) for value in document]
    return f"{document}{HOSTILE}" if isinstance(document, str) and key in _WORDS else document


def is_safe(text: str) -> bool:
    return not any(unsafe(one) for one in text if one != "\n")


def on_terminal(*arguments: object) -> str:
    """What a command prints to a terminal, with plain line breaks."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "dovetail", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            env={**os.environ, "COLUMNS": "400", "TERM": "xterm-256color"},
        )
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # how Linux says that nobody has the other end
            while data := os.read(ours, 65_536):
                shown += data
        assert process.wait(WAIT_SECONDS) == 0
    finally:
        os.close(ours)
    return shown.decode().replace("\r\n", "\n")
