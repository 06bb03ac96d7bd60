"""Access rules: the topics that a client may publish and subscribe to. Pure.

Rules:

- Without rules everything is allowed. With rules, the broker takes those that apply to the client,
  in their order, and the first filter that matches the topic decides. Within a rule the filters
  that deny come first. A topic that no filter matches is denied.
- A subscription is a set of topics, and all of them have to be allowed. The first filter that
  either denies one of them (`overlaps`) or allows all of them (`covers`) decides. Deliveries need
  no further check: a client may read everything that its subscription matches.
- A topic that begins with `$` is in a filter only if the filter names that level: `#` is not
  enough.
- Names that a client chooses for itself (`%u`, `%c`) never widen a filter.
- These objects do not change, except that they remember answers. A reload makes new objects.
"""

import fnmatch
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from weakref import WeakValueDictionary

from dovetail.broker.auth.session_owner import OwnershipRules
from dovetail.settings import AccessRule, AccessSettings
from dovetail.settings.filters import covers, overlaps
from dovetail.topics.names import MULTI_LEVEL, SEPARATOR, SINGLE_LEVEL, split_shared

PUBLISH_ANSWERS_MAX = 1_024
"""Answers that a `ClientAccess` remembers. The oldest is forgotten first."""

PUBLISH_ANSWER_TOPIC_BYTES_MAX = 256
"""Answers for longer topics are not remembered, so that a client cannot fill our memory."""

Levels = tuple[str, ...]
_PLACEHOLDER = re.compile("%[uc]")
_WILDCARDS = frozenset({SINGLE_LEVEL, MULTI_LEVEL})


class FilterDecision(NamedTuple):
    """A filter of a rule with its placeholders filled in, and whether it allows or denies."""

    levels: Levels
    allows: bool


class ClientFilters(NamedTuple):
    """The filters that apply to one client. The first one that matches decides."""

    publish: tuple[FilterDecision, ...]
    subscribe: tuple[FilterDecision, ...]


class ClientAccess:
    """The permissions of one client, or of several clients with the same filters."""

    __slots__ = ("__weakref__", "_answers", "_filters", "everything")

    def __init__(self, filters: ClientFilters | None) -> None:
        """Without `filters` everything is allowed."""
        self.everything = filters is None
        self._filters = filters
        self._answers: dict[bytes, bool] = {}

    def may_publish(self, topic: bytes) -> bool:
        if self._filters is None:
            return True
        answer = self._answers.get(topic)
        if answer is None:
            answer = _is_allowed(self._filters.publish, topic)
            if len(topic) <= PUBLISH_ANSWER_TOPIC_BYTES_MAX:
                if len(self._answers) >= PUBLISH_ANSWERS_MAX:
                    del self._answers[next(iter(self._answers))]
                self._answers[topic] = answer
        return answer

    def may_read(self, topic: bytes) -> bool:
        """May the client get publications of this topic?"""
        return self._filters is None or _is_allowed(self._filters.subscribe, topic)

    def may_subscribe(self, topic_filter: str) -> bool:
        """May the client get everything that the filter matches?

        For a shared subscription the filter within it counts.
        """
        if self._filters is None:
            return True
        shared = split_shared(topic_filter)
        levels = (topic_filter if shared is None else shared.filter).split(SEPARATOR)
        allowed: list[Levels] = []
        for matching, allows in self._filters.subscribe:
            if allows:
                if covers(matching, levels):
                    return True
                allowed.append(matching)
            elif overlaps(matching, levels) and not any(covers(one, matching) for one in allowed):
                return False
        return False


class AccessRules:
    """The rules of the settings, prepared for lookup by client."""

    def __init__(self, rules: Iterable[AccessRule]) -> None:
        self.rules = tuple(rules)
        self._rules = [(_pattern(rule.user), _pattern(rule.client), rule) for rule in self.rules]
        self._everything = ClientAccess(None)
        # Clients with the same filters share one object, and so its remembered answers.
        self._shared: WeakValueDictionary[ClientFilters, ClientAccess] = WeakValueDictionary()

    def for_client(self, user: str | None, client_id: str) -> ClientAccess:
        """Return the permissions of a client. Without a `user` it did not log in."""
        if not self._rules:
            return self._everything
        filters = self._filters(user or "", client_id)
        access = self._shared.get(filters)
        if access is None:
            access = self._shared[filters] = ClientAccess(filters)
        return access

    def may_publish(self, user: str | None, client_id: str, topic: bytes) -> bool:
        return self.for_client(user, client_id).may_publish(topic)

    def may_subscribe(self, user: str | None, client_id: str, topic_filter: str) -> bool:
        return self.for_client(user, client_id).may_subscribe(topic_filter)

    def _filters(self, user: str, client_id: str) -> ClientFilters:
        rules = [
            rule
            for user_pattern, client_pattern, rule in self._rules
            if user_pattern.match(user) and client_pattern.match(client_id)
        ]

        def decisions(deny: str, allow: str) -> tuple[FilterDecision, ...]:
            found = (
                FilterDecision(levels, allows)
                for rule in rules
                for key, allows in (("deny", False), (deny, False), (allow, True))
                for levels in _filled_filters(getattr(rule, key), user, client_id, allowing=allows)
            )
            return tuple(dict.fromkeys(found))

        return ClientFilters(
            publish=decisions("deny_publish", "publish"),
            subscribe=decisions("deny_subscribe", "subscribe"),
        )


def ownership_rules(access: AccessSettings) -> OwnershipRules:
    """Return the ownership rules of sessions that follow from the settings."""
    return OwnershipRules(
        allows_takeover=access.session_takeover, needs_name=access.anonymous == "never"
    )


def _is_allowed(decisions: Iterable[FilterDecision], topic: bytes) -> bool:
    """Does the first filter that matches this topic allow it?"""
    levels = topic.decode().split(SEPARATOR)
    return next((allows for matching, allows in decisions if covers(matching, levels)), False)


def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))


def _filled_filters(
    filters: Iterable[str], user: str, client_id: str, *, allowing: bool
) -> Iterator[Levels]:
    """Yield the filters with names in place of `%u` and `%c`, except those that a name widens.

    A filter is left out if a name in it has a wildcard. A name could also reach topics that the
    rule does not mean: an empty one, one with several levels, or one with `$` at the beginning of
    the filter. Such a filter allows nothing, but still denies.
    """
    values = {"%u": user, "%c": client_id}
    for topic_filter in filters:
        names = [values[placeholder] for placeholder in _PLACEHOLDER.findall(topic_filter)]
        filled = _PLACEHOLDER.sub(lambda found: values[found[0]], topic_filter)
        if any(wildcard in name for name in names for wildcard in _WILDCARDS):
            continue
        is_widened = any(not name or SEPARATOR in name for name in names) or filled.startswith(
            "$"
        ) != topic_filter.startswith("$")
        if not (allowing and is_widened):
            yield tuple(filled.split(SEPARATOR))
