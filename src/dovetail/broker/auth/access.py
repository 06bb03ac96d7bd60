"""Who a client is, and what it may do: pure decisions over settings and a password file.

Rules:

- Without rules everything is allowed. With rules, the first filter that matches a topic decides, of
  the rules that apply to the client, in their order; what a rule denies comes before what it
  allows. What no filter matches is denied.
- A subscription is a set of topics, and all of them have to be allowed. So the first filter decides
  that denies a single one of them (`overlaps`), or allows them all (`covers`). What is delivered
  need not be judged again: who subscribed may read all that the subscription matches.
- A topic that begins with `$` is in a filter only if the filter names that level: `#` is not
  enough.
- What a client chooses for itself (`%u`, `%c`) never widens a filter.
- Nothing here changes after it was made, but for remembered answers; a reload makes new objects.
"""

import fnmatch
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from weakref import WeakValueDictionary

from dovetail.broker.auth.session_owner import Ownership
from dovetail.settings import Access, Rule
from dovetail.settings.filters import covers, overlaps
from dovetail.topics.names import MULTI_LEVEL, SEPARATOR, SINGLE_LEVEL, split_shared

PUBLISH_ANSWERS_MAX = 1_024
"""Remembered per `ClientAccess`; the oldest goes first."""

PUBLISH_ANSWER_TOPIC_BYTES_MAX = 256
"""Answers for longer topics are not remembered: a client must not choose how much we keep."""

Levels = tuple[str, ...]
_PLACEHOLDER = re.compile("%[uc]")
_WILDCARDS = frozenset({SINGLE_LEVEL, MULTI_LEVEL})


class Decision(NamedTuple):
    """A filter of a rule, placeholders filled in."""

    levels: Levels
    allows: bool


class ClientFilters(NamedTuple):
    """The filters that apply to one client, in the order in which they decide."""

    publish: tuple[Decision, ...]
    subscribe: tuple[Decision, ...]


class ClientAccess:
    """What one client may do, or several for whom the same filters hold."""

    __slots__ = ("__weakref__", "_answers", "_filters", "everything")

    def __init__(self, filters: ClientFilters | None) -> None:
        """`filters` None: everything is allowed."""
        self.everything = filters is None
        self._filters = filters
        self._answers: dict[bytes, bool] = {}

    def may_publish(self, topic: bytes) -> bool:
        if self._filters is None:
            return True
        answer = self._answers.get(topic)
        if answer is None:
            answer = _decide(self._filters.publish, topic)
            if len(topic) <= PUBLISH_ANSWER_TOPIC_BYTES_MAX:
                if len(self._answers) >= PUBLISH_ANSWERS_MAX:
                    del self._answers[next(iter(self._answers))]
                self._answers[topic] = answer
        return answer

    def may_read(self, topic: bytes) -> bool:
        """May it have what is published there?"""
        return self._filters is None or _decide(self._filters.subscribe, topic)

    def may_subscribe(self, topic_filter: str) -> bool:
        """May it have everything that the filter matches?

        A shared subscription is judged by the filter in it.
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
    """The rules of the settings, ready to be asked."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._rules = [(_pattern(rule.user), _pattern(rule.client), rule) for rule in self.rules]
        self._everything = ClientAccess(None)
        # Clients for whom the same filters hold share them, and what is remembered of them.
        self._shared: WeakValueDictionary[ClientFilters, ClientAccess] = WeakValueDictionary()

    def for_client(self, user: str | None, client_id: str) -> ClientAccess:
        """What this client may do; None is a client that did not log in."""
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

        def decisions(deny: str, allow: str) -> tuple[Decision, ...]:
            found = (
                Decision(levels, allows)
                for rule in rules
                for key, allows in (("deny", False), (deny, False), (allow, True))
                for levels in _filled(getattr(rule, key), user, client_id, allowing=allows)
            )
            return tuple(dict.fromkeys(found))

        return ClientFilters(
            publish=decisions("deny_publish", "publish"),
            subscribe=decisions("deny_subscribe", "subscribe"),
        )


def ownership(access: Access) -> Ownership:
    """Return which users may connect with the client identifier of whose session."""
    return Ownership(
        allows_takeover=access.session_takeover, needs_name=access.anonymous == "never"
    )


def _decide(decisions: Iterable[Decision], topic: bytes) -> bool:
    """About one topic: the first filter that matches it."""
    levels = topic.decode().split(SEPARATOR)
    return next((allows for matching, allows in decisions if covers(matching, levels)), False)


def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))


def _filled(
    filters: Iterable[str], user: str, client_id: str, *, allowing: bool
) -> Iterator[Levels]:
    """The filters with names in place of `%u` and `%c`; those that a name would widen are left out.

    A wildcard in a name is never one in a filter. A name that is empty, spans levels or begins with
    `$` at the filter's begin could reach what the rule does not mean: it allows nothing, but still
    denies.
    """
    values = {"%u": user, "%c": client_id}
    for topic_filter in filters:
        names = [values[placeholder] for placeholder in _PLACEHOLDER.findall(topic_filter)]
        filled = _PLACEHOLDER.sub(lambda found: values[found[0]], topic_filter)
        if any(wildcard in name for name in names for wildcard in _WILDCARDS):
            continue
        reaches_out = any(not name or SEPARATOR in name for name in names) or filled.startswith(
            "$"
        ) != topic_filter.startswith("$")
        if not (allowing and reaches_out):
            yield tuple(filled.split(SEPARATOR))
