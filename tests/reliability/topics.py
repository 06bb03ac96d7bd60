"""Matches topics with filters by MQTT section 4.7. Pure, and independent of the broker's code."""

from functools import lru_cache


@lru_cache(maxsize=65_536)
def matches(topic_filter: str, topic: str) -> bool:
    """Return whether a subscription to `topic_filter` gets what is published on `topic`."""
    wanted, given = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in {"+", "#"}:
        return False  # [MQTT-4.7.2-1]
    for index, level in enumerate(wanted):
        if level == "#":
            return True
        if index == len(given) or level not in {"+", given[index]}:
            return False
    return len(wanted) == len(given)
