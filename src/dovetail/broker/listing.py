"""The where-clauses of a space as a list that others follow: a log of ids, and where each is. Pure.

Rules:

- A subscription's id is made of client, filter and clause: it stays when the session follows its
  client to another broker. That broker may have the id before this one has lost it.
- The log has an id for each time that something came or went. Whoever has followed it to some place
  gets what the ids behind that place stand for now; a place is a version.
- A log that has grown to many times what it lists begins anew, under another life, and whoever
  follows gets all of it.
"""

import hashlib
from collections.abc import Iterable

from dovetail.broker.clauses import Clause, split_key
from dovetail.broker.routes import Group
from dovetail.broker.subscription import Subscription
from dovetail.config import ENGINE_LISTED_MAX, ENGINE_LOG_SPARE
from dovetail.engines import Entry, Listed

Wanting = Subscription | Group


def subscription_id(client_id: str, key: str) -> int:
    return _number(f"{client_id}\0{key}")


def group_id(name: str, key: str) -> int:
    return _number(f"\0{name}\0{key}")  # no client's name begins so


def _number(text: str) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def id_of(one: Wanting) -> int:
    if isinstance(one, Group):
        return group_id(*one.key)
    return subscription_id(one.session.client_id, one.key)


class Listing:
    """Of one space at one broker."""

    def __init__(self, life: int, there: Iterable[tuple[Wanting, Clause]]) -> None:
        self.life = life
        self._at: dict[int, list[Wanting]] = {}
        self._log: list[int] = []
        for one, _ in there:
            self.put(one)

    def put(self, one: Wanting) -> None:
        number = id_of(one)
        # A client that came back: what it left behind here may still be there (detours.py).
        self._at.setdefault(number, []).append(one)
        self._note(number)

    def take(self, one: Wanting) -> None:
        number = id_of(one)
        known = self._at.get(number, [])
        if one in known:
            known.remove(one)
        if not known:
            self._at.pop(number, None)
        self._note(number)

    def _note(self, number: int) -> None:
        self._log.append(number)
        if len(self._log) > 2 * len(self._at) + ENGINE_LOG_SPARE:
            self.life += 1
            self._log = list(self._at)

    def find(self, number: int) -> Wanting | None:
        """Who has the id now; of two the later one."""
        known = self._at.get(number)
        return known[-1] if known else None

    def since(self, broker: str, life: int, version: int, served: int) -> Listed:
        """What has changed, or the first part of it."""
        is_whole = life != self.life or version > len(self._log)
        start = 0 if is_whole else version
        end = min(start + ENGINE_LISTED_MAX, len(self._log))
        put: list[Entry] = []
        gone: list[int] = []
        for number in dict.fromkeys(self._log[start:end]):
            one = self.find(number)
            if one is None:
                gone.append(number)
            else:
                put.append(_entry(number, one))
        return Listed(broker, self.life, end, is_whole, end < len(self._log), served, put, gone)


def _entry(number: int, one: Wanting) -> Entry:
    is_group = isinstance(one, Group)
    topic_filter, where = split_key(one.key[1] if isinstance(one, Group) else one.key)
    return Entry(number, topic_filter, where, is_group)
