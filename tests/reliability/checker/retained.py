"""Retained messages are the same at all brokers, and the latest stays. Pure.

Judged after the last fault: each topic is read at each broker. All answers must be equal. The
answer must not be older than a publication that was acknowledged at QoS 1 or 2. Older means that it
was completed before the other one began.

Excused: two publications at different brokers while the cluster was disturbed. A broker that was
cut off has not seen the earlier one, and its clock decides (docs/cluster.md: the higher stamp
stays). Also excused is a publication without acknowledgement: it may take effect a moment later.
"""

from collections import defaultdict

from reliability.promises import LATEST, RETAINED
from reliability.record import Publication, Reading, Record
from reliability.verdict import Verdict

_EFFECT_SECONDS = 1.0
"""The time within which an unacknowledged publication may take effect."""


def check(record: Record) -> list[Verdict]:
    retained, latest = Verdict(RETAINED), Verdict(LATEST)
    by_topic: dict[str, dict[str, Reading]] = defaultdict(dict)
    for reading in record.readings:
        if reading.outcome == "ok":
            by_topic[reading.topic][reading.node] = reading  # the last one counts
    writes: dict[str, list[Publication]] = defaultdict(list)
    for publication in record.publications.values():
        if publication.retain:
            writes[publication.topic].append(publication)
    for topic, readings in by_topic.items():
        retained.judged += 1
        at = max(reading.at for reading in readings.values())
        values = {reading.message for reading in readings.values()}
        if len(values) > 1:
            told = ", ".join(f"{node}: {one.message or 'none'}" for node, one in readings.items())
            retained.violate(at, f"brokers retain different messages on {topic}: {told}")
        for value in sorted(values):
            _judge(record, latest, topic, value, writes[topic], at)
    return [retained, latest]


def _judge(
    record: Record, verdict: Verdict, topic: str, value: str, writes: list[Publication], at: float
) -> None:
    """Judge one answer. `value` is the retained message, or "" for none."""
    if value:
        candidates = [one for one in writes if one.message == value]
    else:
        candidates = [one for one in writes if one.clears]
        if not candidates and not any(one.is_acknowledged for one in writes):
            return
    verdict.judged += 1
    excuses = []
    for candidate in candidates:
        overruling = [one for one in writes if _is_older(candidate, one)]
        if not overruling:
            return
        excuse = all(_is_excused(record, candidate, one) for one in overruling)
        excuses.append(excuse)
    if any(excuses):
        verdict.excused["the cluster was disturbed between two publications"] += 1
        return
    newest = max(
        (one for one in writes if one.is_acknowledged),
        key=lambda one: one.invoked_at,
        default=None,
    )
    verdict.violate(
        at,
        f"{value or 'nothing'} is retained on {topic}, although "
        f"{newest.message if newest else 'nothing'} was acknowledged later",
        message=newest.message if newest else value,
    )


def _is_older(one: Publication, other: Publication) -> bool:
    """Return whether `one` was over before `other`, which was acknowledged, began."""
    return other.is_acknowledged and one.completed_at < other.invoked_at


def _is_excused(record: Record, one: Publication, other: Publication) -> bool:
    if one.is_acknowledged and {*one.nodes} == {*other.nodes}:
        return False
    is_soon = not one.is_acknowledged and other.invoked_at - one.invoked_at < _EFFECT_SECONDS
    return is_soon or any(record.disturbed(one.invoked_at, other.completed_at))
