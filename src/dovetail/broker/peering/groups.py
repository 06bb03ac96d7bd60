"""The groups of the whole cluster, and who of all members gets a publication. Pure.

A group is a name and a filter (`$share/name/filter`). A pool is one group with the members of all
brokers: how many each has whose client is connected, and how many for whom a message can be kept.
Rules:

- The broker that a publication comes to picks one broker for each group that matches, once. That
  one picks the member, and nobody else delivers to the group.
- Connected members come before those that are away, and brokers that are up before those that are
  down. What waits for a broker that is down waits for a member whose session is kept there: one
  that was only connected has gone with it.
- Brokers are picked by how many members they have, evenly: each step goes on by the golden section,
  which never leaves a large gap. Where a pool begins is drawn, so that brokers do not go in step.
- A route holds pools, and a pool changes in place: members that come and go cost no route. Routes
  are found anew when a group comes to be, or is no more.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from dovetail.attributes.clauses import split_key
from dovetail.broker.route import Group, Key
from dovetail.topics.trie import FilterTrie

HERE = ""
"""In the place of a peer's name, which is never empty."""

_GOLDEN_SECTION = 0.618_033_988_749_894_9


class Members(NamedTuple):
    """Of a group at one broker."""

    connected: int
    kept: int
    """For these a message at QoS 1 or 2 can wait, whether they are connected or not."""


class Pool:
    """One group, with its members at all brokers."""

    __slots__ = ("_phase", "here", "key", "peers")

    def __init__(self, key: Key, phase: float) -> None:
        self.key = key
        self.here: Group | None = None
        self.peers: dict[str, Members] = {}
        self._phase = phase

    @property
    def is_empty(self) -> bool:
        return self.here is None and not self.peers

    def pick(
        self, qos: int, is_up: Callable[[str], bool], *, elsewhere: bool = False
    ) -> str | None:
        """A broker with a member that gets the next publication; None if nobody can.

        `elsewhere`: not here.
        """
        brokers = dict(self.peers)
        if self.here is not None and not elsewhere:
            brokers[HERE] = Members(self.here.connected, self.here.kept)
        if len(brokers) == 1 and HERE in brokers:
            return HERE
        up = [name for name in brokers if not name or is_up(name)]
        weights = {name: brokers[name].connected for name in up if brokers[name].connected}
        if not weights and qos:
            weights = {name: brokers[name].kept for name in up if brokers[name].kept}
        if not weights and qos:
            weights = {name: one.kept for name, one in brokers.items() if one.kept}
        return self._draw(weights) if weights else None

    def _draw(self, weights: Mapping[str, int]) -> str:
        self._phase = (self._phase + _GOLDEN_SECTION) % 1.0
        left = self._phase * sum(weights.values())
        name = HERE
        for name, weight in weights.items():  # noqa: B007
            left -= weight
            if left < 0:
                break
        return name


class Groups:
    """All pools."""

    def __init__(self, changed: Callable[[str], None], random: Random) -> None:
        """`changed`: routes of what matches this filter may be others now."""
        self.pools: dict[Key, Pool] = {}
        self._changed = changed
        self._random = random
        self._by_filter: FilterTrie[dict[Key, Pool]] = FilterTrie()

    # Tables ---------------------------------------------------------------------------------------

    def put_here(self, group: Group) -> None:
        """Our own members of a group are these."""
        if group.members:
            self._pool(group.key).here = group
        elif group.key in self.pools:
            pool = self.pools[group.key]
            pool.here = None
            self._drop_if_empty(pool)

    def put(self, peer: str, key: Key, members: Members) -> None:
        """Those of a peer."""
        if any(members):
            self._pool(key).peers[peer] = members
        elif key in self.pools:
            pool = self.pools[key]
            pool.peers.pop(peer, None)
            self._drop_if_empty(pool)

    def replace(self, peer: str, table: Mapping[Key, Members]) -> None:
        """All groups of a peer are these."""
        gone = [key for key, pool in self.pools.items() if peer in pool.peers and key not in table]
        for key in gone:
            self.put(peer, key, Members(0, 0))
        for key, members in table.items():
            self.put(peer, key, members)

    def _pool(self, key: Key) -> Pool:
        pool = self.pools.get(key)
        if pool is None:
            topic_filter, _ = split_key(key[1])
            pool = self.pools[key] = Pool(key, self._random.random())
            self._by_filter.setdefault(topic_filter, {})[key] = pool
            self._changed(topic_filter)
        return pool

    def _drop_if_empty(self, pool: Pool) -> None:
        if not pool.is_empty:
            return
        topic_filter, _ = split_key(pool.key[1])
        del self.pools[pool.key]
        pools = self._by_filter[topic_filter]
        del pools[pool.key]
        if not pools:
            del self._by_filter[topic_filter]
        self._changed(topic_filter)

    # Routes ---------------------------------------------------------------------------------------

    def search(self, topics: Sequence[bytes]) -> Sequence[tuple[Pool, ...]]:
        """For each topic the groups that get it."""
        if not self.pools:
            return [()] * len(topics)
        value = self._by_filter.value
        return [
            tuple(pool for number in dict.fromkeys(found) for pool in value(number).values())
            for found in self._by_filter.match_many(topics)
        ]

    def pick(
        self, pools: Iterable[Pool], qos: int, is_up: Callable[[str], bool]
    ) -> tuple[list[Group], dict[str, list[Key]]]:
        """For each pool one broker: the groups that we serve, and by peer those that it serves."""
        here: list[Group] = []
        there: dict[str, list[Key]] = {}
        for pool in pools:
            name = pool.pick(qos, is_up)
            if name == HERE:
                assert pool.here is not None
                here.append(pool.here)
            elif name is not None:
                there.setdefault(name, []).append(pool.key)
        return here, there
