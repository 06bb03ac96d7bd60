"""The shared subscriptions of the cluster: which broker's member gets a publication. Pure.

A group is a name and a filter (`$share/name/filter`). A pool is one group with the members of all
brokers: the number that are connected at each, and the number that can keep a message.
Rules:

- The broker that a client publishes to picks one broker for each matching group, once. The picked
  broker picks the member. No other broker delivers to the group.
- Connected members come before others, and brokers that are up before those that are down. A broker
  that is down is picked for members with persistent sessions only: the others went with it.
- Brokers are picked evenly, in proportion to their members: each step adds the golden section,
  which never leaves a large gap. A pool starts at a random phase, so that brokers do not go in
  step.
- A route holds pools, and a pool changes in place: members that come and go cost no route. Routes
  are found anew when a group begins or ends.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from dovetail.attributes.clauses import split_key
from dovetail.broker.route import Group, GroupKey
from dovetail.topics.trie import FilterTrie

HERE = ""
"""Stands for this broker. The name of a peer is never empty."""

_GOLDEN_SECTION = 0.618_033_988_749_894_9


class MemberCounts(NamedTuple):
    """The members of a group at one broker."""

    connected: int
    kept: int
    """Members with persistent sessions, which can keep a message at QoS 1 or 2."""


class GroupPool:
    """One group, with its members at all brokers."""

    __slots__ = ("_phase", "here", "key", "peers")

    def __init__(self, key: GroupKey, phase: float) -> None:
        self.key = key
        self.here: Group | None = None
        self.peers: dict[str, MemberCounts] = {}
        self._phase = phase

    @property
    def is_empty(self) -> bool:
        return self.here is None and not self.peers

    def pick(
        self, qos: int, is_up: Callable[[str], bool], *, elsewhere: bool = False
    ) -> str | None:
        """Pick the broker whose member gets the next publication; None if there is none.

        With `elsewhere` it is another broker than this one.
        """
        brokers = dict(self.peers)
        if self.here is not None and not elsewhere:
            brokers[HERE] = MemberCounts(self.here.connected, self.here.persistent)
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


class GroupPools:
    """The pools of all groups."""

    def __init__(self, changed: Callable[[str], None], random: Random) -> None:
        """`changed` is called with a filter when routes of its topics may have changed."""
        self.pools: dict[GroupKey, GroupPool] = {}
        self._changed = changed
        self._random = random
        self._by_filter: FilterTrie[dict[GroupKey, GroupPool]] = FilterTrie()

    # Tables ---------------------------------------------------------------------------------------

    def put_here(self, group: Group) -> None:
        """Set our own members of a group."""
        if group.members:
            self._pool(group.key).here = group
        elif group.key in self.pools:
            pool = self.pools[group.key]
            pool.here = None
            self._drop_if_empty(pool)

    def put(self, peer: str, key: GroupKey, members: MemberCounts) -> None:
        """Set a peer's members of a group."""
        if any(members):
            self._pool(key).peers[peer] = members
        elif key in self.pools:
            pool = self.pools[key]
            pool.peers.pop(peer, None)
            self._drop_if_empty(pool)

    def replace(self, peer: str, table: Mapping[GroupKey, MemberCounts]) -> None:
        """Set all groups of a peer."""
        gone = [key for key, pool in self.pools.items() if peer in pool.peers and key not in table]
        for key in gone:
            self.put(peer, key, MemberCounts(0, 0))
        for key, members in table.items():
            self.put(peer, key, members)

    def _pool(self, key: GroupKey) -> GroupPool:
        pool = self.pools.get(key)
        if pool is None:
            topic_filter, _ = split_key(key[1])
            pool = self.pools[key] = GroupPool(key, self._random.random())
            self._by_filter.setdefault(topic_filter, {})[key] = pool
            self._changed(topic_filter)
        return pool

    def _drop_if_empty(self, pool: GroupPool) -> None:
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

    def search(self, topics: Sequence[bytes]) -> Sequence[tuple[GroupPool, ...]]:
        """Return the matching pools of each topic."""
        if not self.pools:
            return [()] * len(topics)
        value = self._by_filter.value
        return [
            tuple(pool for number in dict.fromkeys(found) for pool in value(number).values())
            for found in self._by_filter.match_many(topics)
        ]

    def pick(
        self, pools: Iterable[GroupPool], qos: int, is_up: Callable[[str], bool]
    ) -> tuple[list[Group], dict[str, list[GroupKey]]]:
        """Pick a broker for each pool: return the groups that we serve, and those of each peer."""
        here: list[Group] = []
        there: dict[str, list[GroupKey]] = {}
        for pool in pools:
            name = pool.pick(qos, is_up)
            if name == HERE:
                assert pool.here is not None
                here.append(pool.here)
            elif name is not None:
                there.setdefault(name, []).append(pool.key)
        return here, there
