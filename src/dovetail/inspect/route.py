"""`dovetail route`: says where a publication would go, and why."""

from collections.abc import Iterator, Sequence

import msgspec

from dovetail.api.http_client import Login, fetch_as
from dovetail.api.reports import AttributesReport, FilterMatch, PeerRoute, RouteReport, TopicMatches
from dovetail.inspect.attributes import matching_sentences, subject_words, value_sentences
from dovetail.process.terminal import say, say_json

_FILTERS_SHOWN = 10
_SYS_PREFIX = "$SYS/"


def show_route(
    url: str,
    topic: str,
    attributes: Sequence[tuple[str, str]] = (),
    login: Login | None = None,
    *,
    as_json: bool,
) -> None:
    given = [f"{name}={value}" for name, value in attributes]
    report = fetch_as(login, url, "/route", RouteReport, {"topic": topic, "attr": given})
    if as_json:
        say_json(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        say(*sentences(report, has_attributes=bool(given)))


def sentences(report: RouteReport, *, has_attributes: bool = False) -> Iterator[str]:
    """Describe a route. `has_attributes`: attributes were given."""
    attributes = report.attributes
    yield f"A publication on {report.topic}{_with(attributes)}, sent to {report.asked}:"
    if attributes is not None:
        yield from value_sentences(attributes)
    yield f"  {report.asked} (here): {_deliveries(report.here)}"
    yield from _filters(report.here)
    for peer in report.peers:
        yield f"  {peer.name}: {_verdict(peer, attributes)}"
        if peer.matches is not None:
            yield from _filters(peer.matches)
    if report.peers and report.topic.startswith(_SYS_PREFIX):
        yield "What is published below $SYS stays on its broker, retained or not."
    elif report.peers:
        yield "One that is to be retained goes to all of them."
    if report.here.has_retained:
        yield "There is a retained message on this topic."
    if report.is_archived is not None:
        yield f"It is {'' if report.is_archived else 'not '}archived."
    if attributes is not None:
        yield from matching_sentences(attributes)
    elif has_attributes:
        yield "Of attributes it says nothing: it is a broker of an older version."


def _with(attributes: AttributesReport | None) -> str:
    given = [one for one in attributes.values if one.place != "missing"] if attributes else []
    return f" with {', '.join(f'{one.name}={one.given}' for one in given)}" if given else ""


def _deliveries(matches: TopicMatches) -> str:
    if not matches.count:
        return "nobody has subscribed to it"
    plain = sum(_getting(match) for match in matches.filters if match.group is None)
    groups = [match.group for match in matches.filters if match.group is not None]
    parts = []
    if plain:
        parts.append(f"{plain} subscription{'s' * (plain > 1)}")
    if groups:
        parts.append(f"group{'s' * (len(groups) > 1)} {', '.join(groups)}, one member each")
    words = " and ".join(parts) or "no where-clause holds"
    is_all = matches.count == len(matches.filters)
    return words if is_all else f"{words}, of the first {len(matches.filters)} filters that match"


def _getting(match: FilterMatch) -> int:
    return match.subscribers if match.holding is None else match.holding


def _verdict(peer: PeerRoute, attributes: AttributesReport | None) -> str:
    away = "" if peer.state == "alive" else f" It is {_STATES[peer.state]}."
    needed = None if peer.matches is None else any(map(_getting, peer.matches.filters))
    if not peer.is_forwarded:
        words = f"it does not go there: {_WHY_NOT[peer.guess]}.{away}"
        if peer.wants_attributes and attributes is None:
            words = f"it goes there if it has attributes, for where-clauses.{away}"
        elif peer.wants_attributes and attributes is not None:
            words = f"{_clauses(peer, attributes)}.{away}"
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


def _clauses(peer: PeerRoute, attributes: AttributesReport) -> str:
    """Say whether it goes to a broker that would need it for where-clauses only."""
    if attributes.unasked in ("space", "attributes"):
        return "it does not go there: only where-clauses might want it"
    matching = attributes.matching
    subjects = {} if matching is None else {one.name: one for one in matching.subjects}
    words = "it goes there: its sketch says maybe, for where-clauses"
    if peer.name in subjects:
        words = subject_words(subjects[peer.name])
    if peer.matches is None:
        return f"{words}. It did not answer"
    return f"{words}: {_deliveries(peer.matches)}"


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


def _filters(matches: TopicMatches) -> Iterator[str]:
    for match in matches.filters[:_FILTERS_SHOWN]:
        holding = "" if match.holding is None else f"; {match.holding} hold"
        yield f"      {match.filter}  ({match.subscribers}{holding})"
    more = matches.count - _FILTERS_SHOWN
    if more > 0:
        yield f"      and {more:,} more filters"
