"""Sends the members of our shared subscriptions to all peers, and takes theirs. Pure.

    owner                                      peer
      | -- GROUPS: all, at version v ---------> |   when a connection opens
      | <- GROUPS_KNOWN: lineage, version ----- |
      | -- GROUPS: changes since v -----------> |   one at a time: later changes go with the next
      | <- GROUPS_KNOWN, or GROUPS_LOST:        |
      |    I do not have version v ------------ |

Rules:

- Groups are few, so they are sent exactly, not in the sketch. A broker refuses groups beyond the
  limit. If restored groups exceed it, only this broker serves them.
- A group counts as known when every live peer has acknowledged it. A SUBACK waits for that, but not
  beyond a deadline.
- A peer's groups stay while the peer may return: messages are spooled for its members. Groups with
  persistent sessions there are on disk before we acknowledge them. So a broker that starts while
  the peer is down spools for it, too.
"""

import logging
from collections.abc import Callable, Iterable

from dovetail.attributes.clauses import check_key
from dovetail.broker.peering.groups import GroupPools, MemberCounts
from dovetail.broker.peering.limits import GROUPS_BYTES_MAX, GROUPS_MAX
from dovetail.broker.peering.peer_messages import (
    GROUPS,
    GROUPS_KNOWN,
    GROUPS_LOST,
    GroupRow,
    GroupUpdate,
    ReplicaVersions,
    decoded,
    encode,
    group_update_decoder,
    versions_decoder,
)
from dovetail.broker.route import Group, GroupKey
from dovetail.broker.shared_state import SharedState
from dovetail.cluster.replicated_state import NOTHING, ReplicatedState
from dovetail.errors import ClientError, PeerError
from dovetail.topics.names import SHARE_PREFIX

log = logging.getLogger("dovetail.cluster")

Send = Callable[[str, int, bytes], bool]
Answer = Callable[[int, bytes], object]

_ROW_BYTES = 32
"""The largest size of a row without its texts."""


class _PeerGroups:
    """The groups of one peer, as far as we know."""

    __slots__ = ("answers_waiting", "kept", "keys", "nbytes", "state")

    def __init__(self) -> None:
        self.state = (0, NOTHING)  # lineage and version
        self.keys: set[GroupKey] = set()
        self.kept: set[GroupKey] = set()  # with persistent sessions; these are on disk
        self.nbytes = 0
        self.answers_waiting = 0  # for the disk

    def take(self, table: dict[GroupKey, MemberCounts], *, is_whole: bool) -> None:
        """Apply an update. Raise a PeerError if the peer would have too many groups."""
        keys = set() if is_whole else self.keys
        come = {key for key, members in table.items() if any(members)} - keys
        gone = {key for key, members in table.items() if not any(members)} & keys
        nbytes = sum(map(_size, come)) - sum(map(_size, gone))
        if not is_whole:
            nbytes += self.nbytes
        if len(keys) + len(come) - len(gone) > GROUPS_MAX or nbytes > GROUPS_BYTES_MAX:
            raise PeerError("more groups than a broker may have")
        self.nbytes = nbytes
        self.keys = keys
        keys |= come
        keys -= gone


class GroupExchange:
    """One broker's side of the exchange."""

    def __init__(
        self, shared: SharedState, groups: GroupPools, *, lineage: int, send: Send
    ) -> None:
        self._journal = shared.journal
        self.groups = groups
        self._send = send
        self._lineage = lineage
        self._version = 0
        self._own: dict[GroupKey, MemberCounts] = {}
        self._own_bytes = 0
        self._replicas = ReplicatedState()
        self._changed: dict[str, set[GroupKey]] = {}  # since the last update to each connected peer
        self._theirs: dict[str, _PeerGroups] = {}
        self._is_full = False

    def restore(self, rows: Iterable[tuple[str, str, str]]) -> None:
        """Restore the groups that peers had in our last life."""
        for peer, name, topic_filter in rows:
            self._theirs.setdefault(peer, _PeerGroups()).kept.add((name, topic_filter))
            self.groups.put(peer, (name, topic_filter), MemberCounts(0, 1))

    # Ours -----------------------------------------------------------------------------------------

    def has_room_for(self, key: GroupKey) -> bool:
        """Return whether a client here may begin this group."""
        return key in self._own or (
            len(self._own) < GROUPS_MAX and self._own_bytes + _size(key) <= GROUPS_BYTES_MAX
        )

    def group_changed(self, group: Group) -> None:
        """Note that members of a group here came, went or changed."""
        self.groups.put_here(group)
        key = group.key
        members = MemberCounts(group.connected, group.persistent)
        before = self._own.get(key, MemberCounts(0, 0))
        if members == before:
            return
        if not any(members):
            del self._own[key]
            self._own_bytes -= _size(key)
        elif key in self._own:
            self._own[key] = members
        elif self.has_room_for(key):
            self._own[key] = members
            self._own_bytes += _size(key)
        else:
            if not self._is_full:
                log.warning("there are too many groups: other brokers are not told of all of them")
            self._is_full = True
            return
        self._version += 1
        for changed in self._changed.values():
            changed.add(key)

    # To the peers ---------------------------------------------------------------------------------

    def peer_is_live(self, name: str, is_live: bool) -> None:
        self._replicas.peer_is_live(name, is_live)

    def peer_is_up(self, name: str, is_up: bool) -> None:
        self._replicas.peer_is_up(name, is_up)
        self._changed.pop(name, None)
        if is_up:
            self._changed[name] = set()
            self.flush()

    def forget(self, name: str) -> None:
        """Forget a peer that will not return."""
        self._changed.pop(name, None)
        theirs = self._theirs.pop(name, None)
        for key in () if theirs is None else theirs.kept:
            self._journal.save_peer_group(name, *key, None)
        self.groups.replace(name, {})
        self._replicas.forget(name)

    def flush(self) -> None:
        """Send changes to the peers. At the end of a turn, so that many changes share a frame."""
        self._replicas.send(self._version, self._send_rows)

    def _send_rows(self, name: str, since: int) -> bool:
        keys = self._own if since == NOTHING else sorted(self._changed[name])
        rows = [GroupRow(*key, *self._own.get(key, (0, 0))) for key in keys]
        body = encode(GroupUpdate(self._lineage, since, self._version, rows))
        is_sent = self._send(name, GROUPS, body)
        if is_sent:
            self._changed[name] = set()
        return is_sent

    def answered(self, name: str, kind: int, body: bytes) -> None:
        """Take GROUPS_KNOWN or GROUPS_LOST from a peer."""
        if name not in self._replicas:
            return
        version, own_state = NOTHING, (0, 0)
        if kind == GROUPS_KNOWN:
            known = decoded(versions_decoder, body)
            self._outlive(known)
            if known.lineage == self._lineage:
                version, own_state = known.version, known.own_state
        self._replicas.answered(name, version, own_state)
        self.flush()

    def _outlive(self, known: ReplicaVersions) -> None:
        """Begin a new lineage if the peer knows a later life of us, as with sketches."""
        lineage = known.outlived(self._lineage, self._version)
        if lineage != self._lineage:
            self._lineage = lineage
            self._replicas.restart()

    @property
    def is_synchronous(self) -> bool:
        """Do we have all live peers' groups, of the versions when they first knew of us?"""
        return self._replicas.has_peers_states(self._state_of)

    def _state_of(self, name: str) -> tuple[int, int]:
        return self._theirs[name].state if name in self._theirs else (0, 0)

    # Waiting for the peers ------------------------------------------------------------------------

    def when_known(self, deadline: float, act: Callable[[], None]) -> None:
        """Act when all live peers know our groups as they are now, or at the deadline."""
        self._replicas.wait(self._version, deadline, act)

    def tick(self, now: float) -> int:
        """Return how many acted at their deadline only."""
        return self._replicas.tick(now)

    # From the peers -------------------------------------------------------------------------------

    def receive(self, name: str, body: bytes, answer: Answer) -> None:
        """Take GROUPS from a peer."""
        update = decoded(group_update_decoder, body)
        rows_before = self._journal.rows_written
        theirs = self._theirs.get(name) or _PeerGroups()
        state = (update.lineage, update.version)
        is_whole = update.since == NOTHING
        if state > theirs.state:  # otherwise a late frame of an earlier connection
            if not is_whole and (update.lineage, update.since) != theirs.state:
                answer(GROUPS_LOST, b"")
                return
            table = {_checked(row): MemberCounts(row.connected, row.kept) for row in update.rows}
            theirs.take(table, is_whole=is_whole)
            theirs.state = state
            self._theirs[name] = theirs
            self._keep(name, theirs, table, is_whole=is_whole)
            if is_whole:
                self.groups.replace(name, table)
            else:
                for key, members in table.items():
                    self.groups.put(name, key, members)
        body = encode(ReplicaVersions(*theirs.state, self._lineage, self._version))
        if rows_before == self._journal.rows_written and not theirs.answers_waiting:
            answer(GROUPS_KNOWN, body)
            return
        theirs.answers_waiting += 1

        def act(stored: bool) -> None:
            if not stored:
                self._journal.wait_on(act)
                return
            theirs.answers_waiting -= 1
            answer(GROUPS_KNOWN, body)

        self._journal.when_stored(act)

    def _keep(
        self, name: str, theirs: _PeerGroups, table: dict[GroupKey, MemberCounts], *, is_whole: bool
    ) -> None:
        kept = {key for key, members in table.items() if members.kept}
        gone = theirs.kept - kept if is_whole else theirs.kept & (table.keys() - kept)
        for key in kept - theirs.kept:
            self._journal.save_peer_group(name, *key, 1)
        for key in gone:
            self._journal.save_peer_group(name, *key, None)
        theirs.kept = theirs.kept - gone | kept


def _size(key: GroupKey) -> int:
    name, topic_filter = key
    return len(name.encode()) + len(topic_filter.encode()) + _ROW_BYTES


def _checked(row: GroupRow) -> GroupKey:
    try:
        check_key(f"{SHARE_PREFIX}/{row.name}/{row.filter}")
    except ClientError as error:
        raise PeerError(f"a group that there cannot be: {error.message}") from error
    if "/" in row.name:
        raise PeerError("a group with a separator in its name")
    return row.name, row.filter
