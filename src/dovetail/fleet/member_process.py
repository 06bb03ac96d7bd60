"""One node of a fleet, in a process of its own, started by `up`.

It is `python -m dovetail.fleet.member_process`.

It is told what it is in one line on its standard input, and stops when that ends. What it has to
say goes back in lines of JSON (supervisor.py).
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
        announce=_announce_and_tell if member.tells_load else _announce,
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
        shares_ports=True,  # at least with who started us
        stream_key=member.stream_key,
        log_name=member.name,
    )


def _begin(node: Service) -> None:
    """Who started us has our input's other end: it ends with them."""
    loop = asyncio.get_running_loop()

    def heed() -> None:
        if not os.read(_INPUT, 4_096):
            loop.remove_reader(_INPUT)
            node.stop_soon()

    loop.add_reader(_INPUT, heed)


def _announce(node: Service) -> None:
    _say({UP: node.places})


def _announce_and_tell(node: "MatcherNode") -> None:
    """How busy it is, once a second."""
    _announce(node)
    loop = asyncio.get_running_loop()

    def tell() -> None:
        assert node.agent is not None
        _say({LOAD: [node.agent.phase, node.agent.back.answering.busy_share]})
        loop.call_later(MATCHERS_LOOK_SECONDS, tell)

    tell()


def _say(what: dict[str, object]) -> None:
    """Without waiting: who does not read must not hold us up."""
    os.set_blocking(_OUTPUT, False)
    with contextlib.suppress(OSError):  # nobody is there any more: our input says so too
        os.write(_OUTPUT, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    main()
