"""Topic filters in settings: which are valid, and whether two of them overlap.

`topics.names.check_filter` has the same rules, but settings may not import it.
"""

from collections.abc import Sequence

from dovetail.limits import TOPIC_BYTES_MAX

_SINGLE_LEVEL = "+"
_MULTI_LEVEL = "#"
_WILDCARDS = frozenset({_SINGLE_LEVEL, _MULTI_LEVEL})


def filter_fault(topic_filter: str) -> str | None:
    """Return why a rule or a space cannot have this filter, or None.

    The placeholders `%u` and `%c` are plain text here.
    """
    *parents, last = levels = topic_filter.split("/")
    why = None
    if not topic_filter:
        why = "it is empty"
    elif "\0" in topic_filter:
        why = "it holds the null character U+0000"
    elif len(topic_filter.encode()) > TOPIC_BYTES_MAX:
        why = f"it has more than {TOPIC_BYTES_MAX:_} bytes"
    elif levels[0] == "$share":
        why = "it takes the filter within a shared subscription, without $share and its group"
    elif any("#" in level for level in parents) or ("#" in last and last != "#"):
        why = "# must be the last level, and a whole one"
    elif any("+" in level and level != "+" for level in levels):
        why = "+ must be a whole level"
    return why


def covers(allowed: Sequence[str], requested: Sequence[str]) -> bool:
    """Return True if `allowed` matches every topic that `requested` matches. Both are levels."""
    if requested[0].startswith("$") and allowed[0] in _WILDCARDS:
        return False  # [MQTT-4.7.2-1]
    for position, level in enumerate(requested):
        if position == len(allowed):
            return False
        if allowed[position] == _MULTI_LEVEL:
            return True
        if level == _MULTI_LEVEL:
            # # matches its parent level too, and that is too short for the rest of `allowed`. The
            # exception is an empty parent: there is no empty topic.
            no_parent = position == 0 or (position == 1 and not requested[0])
            return no_parent and tuple(allowed[position:]) == (_SINGLE_LEVEL, _MULTI_LEVEL)
        if allowed[position] not in {_SINGLE_LEVEL, level}:
            return False
    rest = allowed[len(requested) :]
    return not rest or rest[0] == _MULTI_LEVEL


def overlaps(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return True if some topic matches both filters. Both are levels."""
    for first, second in ((one, other), (other, one)):
        if first[0] in _WILDCARDS and second[0].startswith("$"):
            return False  # [MQTT-4.7.2-1]
        if tuple(first) == ("", _MULTI_LEVEL) and tuple(second) == (_SINGLE_LEVEL,):
            return False  # only the empty topic would match both, and there is none
    for level, other_level in zip(one, other, strict=False):
        if _MULTI_LEVEL in {level, other_level}:
            return True
        if level != other_level and _SINGLE_LEVEL not in {level, other_level}:
            return False
    shorter, longer = sorted((one, other), key=len)
    rest = longer[len(shorter) :]
    return not rest or rest[0] == _MULTI_LEVEL
