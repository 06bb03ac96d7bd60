"""The main program of one node of a fleet, which `up` starts in its own process.

It is `python -m dovetail.fleet.member_process`. It reads its configuration (a `Member`) from one
line of standard input, and stops when standard input ends. It reports with lines of JSON on its
standard output (supervisor.py).
"""

import asyncio
import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING

import msgspec

from dovetail.api.child_process import DRAINED, ERROR, LOAD, UP
from dovetail.errors import DovetailError
from dovetail.fleet.limits import MATCHERS_LOOK_SECONDS
from dovetail.fleet.members import Member, settings_of_member
from dovetail.node.service import Service
from dovetail.process import garbage

if TYPE_CHECKING:
    from dovetail.node.matcher import MatcherNode

_INPUT, _OUTPUT = 0, 1


def main() -> None:
    member = msgspec.json.decode(sys.stdin.buffer.readline(), type=Member)
    try:
        if member.role == "matcher":
            _run_matcher(member)
        else:
            _run_broker(member)
    except DovetailError as error:
        _say({ERROR: str(error)})
        sys.exit(2)


def _run_matcher(member: Member) -> None:
    with garbage.paused():
        from dovetail.node.matcher import run_matcher

    run_matcher(
        settings_of_member(member),
        load=lambda: settings_of_member(member),
        begin=_begin,
        announce=_announce_and_report_load if member.tells_load else _announce,
        on_drain=lambda: _say({DRAINED: True}),
        shares_ports=True,
        log_name=member.name,
    )


def _run_broker(member: Member) -> None:
    with garbage.paused():
        from dovetail.node.broker import run_node

    run_node(
        settings_of_member(member),
        load=lambda: settings_of_member(member),
        begin=_begin,
        announce=_announce,
        shares_ports=True,  # at least with the supervisor
        stream_key=member.stream_key,
        log_name=member.name,
    )


def _begin(node: Service) -> None:
    """Stop when standard input ends: the supervisor has its other end."""
    loop = asyncio.get_running_loop()

    def on_input() -> None:
        if not os.read(_INPUT, 4_096):
            loop.remove_reader(_INPUT)
            node.stop_soon()

    loop.add_reader(_INPUT, on_input)


def _announce(node: Service) -> None:
    _say({UP: node.addresses})


def _announce_and_report_load(node: "MatcherNode") -> None:
    """Announce the matcher, and report its phase and load once a second."""
    _announce(node)
    loop = asyncio.get_running_loop()

    def report() -> None:
        assert node.agent is not None
        _say({LOAD: [node.agent.phase, node.agent.side.answers.busy_share]})
        loop.call_later(MATCHERS_LOOK_SECONDS, report)

    report()


def _say(what: dict[str, object]) -> None:
    """Write a message without waiting: a supervisor that does not read must not delay us."""
    os.set_blocking(_OUTPUT, False)
    with contextlib.suppress(OSError):  # the supervisor has ended: our input ends, too
        os.write(_OUTPUT, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    main()
