"""The where-clauses of a space as a log of ids that a stream follows. Pure.

Rules:

- A subscription's id is a hash of client, filter and clause. It stays the same when the session
  moves to another broker. For a moment both brokers may have the id.
- The log gets an id whenever a subscription or group comes or goes. A version is a position in the
  log: a follower gets the current state of all ids behind its version.
- A log that is much longer than its number of entries begins anew under another life. Then each
  follower gets all entries.
"""

import hashlib
from collections.abc import Iterable

from dovetail.api.engine import ClauseChanges, ClauseSubscription
from dovetail.attributes.clauses import Clause, split_key
from dovetail.broker.limits import ENGINE_LISTED_MAX, ENGINE_LOG_SPARE
from dovetail.broker.route import Group
from dovetail.broker.subscription import Subscription

AnySubscription = Subscription | Group


def subscription_id(client_id: str, key: str) -> int:
    return _number(f"{client_id}\0{key}")


def group_id(name: str, key: str) -> int:
    return _number(f"\0{name}\0{key}")  # no client identifier begins with "\0"


def _number(text: str) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def id_of(one: AnySubscription) -> int:
    if isinstance(one, Group):
        return group_id(*one.key)
    return subscription_id(one.session.client_id, one.key)


class ClauseLog:
    """The clause log of one space at one broker."""

    def __init__(self, life: int, entries: Iterable[tuple[AnySubscription, Clause]]) -> None:
        self.life = life
        self._holders: dict[int, list[AnySubscription]] = {}
        self._log: list[int] = []
        for one, _ in entries:
            self.add(one)

    def add(self, one: AnySubscription) -> None:
        number = id_of(one)
        # A client that came back may still have a redirected session here under the same id
        # (broker/peering/roaming/redirect.py).
        self._holders.setdefault(number, []).append(one)
        self._note(number)

    def remove(self, one: AnySubscription) -> None:
        number = id_of(one)
        known = self._holders.get(number, [])
        if one in known:
            known.remove(one)
        if not known:
            self._holders.pop(number, None)
        self._note(number)

    def _note(self, number: int) -> None:
        self._log.append(number)
        if len(self._log) > 2 * len(self._holders) + ENGINE_LOG_SPARE:
            self.life += 1
            self._log = list(self._holders)

    def find(self, number: int) -> AnySubscription | None:
        """Return the subscription or group with this id, the latest one if there are two."""
        known = self._holders.get(number)
        return known[-1] if known else None

    def changes_since(self, broker: str, life: int, version: int, served: int) -> ClauseChanges:
        """Return the changes since `version`, at most ENGINE_LISTED_MAX of them."""
        is_whole = life != self.life or version > len(self._log)
        start = 0 if is_whole else version
        end = min(start + ENGINE_LISTED_MAX, len(self._log))
        added: list[ClauseSubscription] = []
        removed: list[int] = []
        for number in dict.fromkeys(self._log[start:end]):
            one = self.find(number)
            if one is None:
                removed.append(number)
            else:
                added.append(_entry(number, one))
        return ClauseChanges(
            broker, self.life, end, is_whole, end < len(self._log), served, added, removed
        )


def _entry(number: int, one: AnySubscription) -> ClauseSubscription:
    is_group = isinstance(one, Group)
    topic_filter, where = split_key(one.key[1] if isinstance(one, Group) else one.key)
    return ClauseSubscription(number, topic_filter, where, is_group)
