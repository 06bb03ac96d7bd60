"""Where a publication would go, and why, in sentences."""

from collections.abc import Iterator

import msgspec

from dovetail.looking.fetching import fetch
from dovetail.reports import Matches, PeerRoute, RouteReport

_FILTERS_SHOWN = 10
_SYS_PREFIX = "$SYS/"


def show_route(url: str, topic: str, *, as_json: bool) -> None:
    report = fetch(url, "/route", RouteReport, topic=topic)
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        print("\n".join(sentences(report)))


def sentences(report: RouteReport) -> Iterator[str]:
    yield f"A publication on {report.topic}, sent to {report.asked}:"
    yield f"  {report.asked} (here): {_deliveries(report.here)}"
    yield from _filters(report.here)
    for peer in report.peers:
        yield f"  {peer.name}: {_verdict(peer)}"
        if peer.matches is not None:
            yield from _filters(peer.matches)
    if report.peers and report.topic.startswith(_SYS_PREFIX):
        yield "What is published below $SYS stays on its broker, retained or not."
    elif report.peers:
        yield "One that is to be retained goes to all of them."
    if report.here.has_retained:
        yield "There is a retained message on this topic."


def _deliveries(matches: Matches) -> str:
    if not matches.count:
        return "nobody has subscribed to it"
    plain = sum(match.subscribers for match in matches.filters if match.group is None)
    groups = [match.group for match in matches.filters if match.group is not None]
    parts = []
    if plain:
        parts.append(f"{plain} subscription{'s' * (plain > 1)}")
    if groups:
        parts.append(f"group{'s' * (len(groups) > 1)} {', '.join(groups)}, one member each")
    words = " and ".join(parts)
    is_all = matches.count == len(matches.filters)
    return words if is_all else f"{words}, of the first {len(matches.filters)} filters that match"


def _verdict(peer: PeerRoute) -> str:
    away = "" if peer.state == "alive" else f" It is {_STATES[peer.state]}."
    needed = None if peer.matches is None else bool(peer.matches.count)
    if not peer.is_forwarded:
        words = f"it does not go there: {_WHY_NOT[peer.guess]}.{away}"
        if peer.wants_attributes:
            words = f"it goes there if it has attributes, for where-clauses.{away}"
        elif peer.matches is not None and peer.matches.count > peer.matches.plain:
            words = f"it goes there if one of its members is picked for the group.{away}"
    elif peer.guess == "unknown":
        words = f"it goes there: its sketch is not known yet.{away}"
    elif needed is None:
        words = f"it goes there: its sketch says maybe, and it did not answer.{away}"
    elif needed:
        words = f"it goes there, and is needed: {_deliveries_of(peer)}.{away}"
    else:
        words = f"it goes there in vain: its sketch says maybe, and nobody has subscribed.{away}"
    return words


_WHY_NOT = {
    "no": "its sketch says no",
    "maybe": "the topic stays on the broker",
    "unknown": "the topic stays on the broker",
}
_STATES = {
    "suspect": "late, or not connected",
    "dead": "down: at QoS 1 and 2 it is kept for it",
    "left": "stopped: at QoS 1 and 2 it is kept for it",
}


def _deliveries_of(peer: PeerRoute) -> str:
    assert peer.matches is not None
    return _deliveries(peer.matches)


def _filters(matches: Matches) -> Iterator[str]:
    for match in matches.filters[:_FILTERS_SHOWN]:
        yield f"      {match.filter}  ({match.subscribers})"
    more = matches.count - _FILTERS_SHOWN
    if more > 0:
        yield f"      and {more:,} more filters"
