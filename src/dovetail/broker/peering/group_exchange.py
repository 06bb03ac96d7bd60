"""How many members our groups have, told to all peers; and what they tell us of theirs. Pure.

    owner                                      peer
      | -- GROUPS: all, at version v ---------> |   when a connection comes about
      | <- GROUPS_KNOWN: lineage, version ----- |
      | -- GROUPS: what changed since v ------> |   one at a time: what changes while one is on its
      | <- GROUPS_KNOWN, or GROUPS_LOST:        |   way goes with the next
      |    I lack what it builds on ----------- |

Rules:

- Groups are few, so they are told exactly, and not in the sketch. Where there are more than the
  limit allows, further ones are refused; one that was there before is served here alone.
- A group counts as known when every live peer has said so. Who waits for that (SUBACK does) waits
  for so long and no longer.
- A peer's groups stay while the peer may come back: what only it has members for is owed to it.
  Which groups have members there whose sessions are kept is on disk before the peer is told that it
  is known. So a broker that starts while the peer is down owes to it all the same.
"""

import logging
from collections.abc import Callable, Iterable

from dovetail.attributes.clauses import check_key
from dovetail.broker.peering.groups import Groups, Members
from dovetail.broker.peering.limits import GROUPS_BYTES_MAX, GROUPS_MAX
from dovetail.broker.peering.peer_messages import (
    GROUPS,
    GROUPS_KNOWN,
    GROUPS_LOST,
    GroupRow,
    GroupRows,
    Known,
    decoded,
    encode,
    group_rows_decoder,
    known_decoder,
)
from dovetail.broker.route import Group, Key
from dovetail.broker.shared_state import Shared
from dovetail.cluster.replicated_state import NOTHING, ReplicatedState
from dovetail.errors import ClientError, PeerError
from dovetail.topics.names import SHARE_PREFIX

log = logging.getLogger("dovetail.cluster")

Send = Callable[[str, int, bytes], bool]
Answer = Callable[[int, bytes], object]

_ROW_BYTES = 32
"""Of a row besides its texts, at most."""


class _Theirs:
    """What we have of one peer's groups."""

    __slots__ = ("answers_waiting", "kept", "keys", "nbytes", "state")

    def __init__(self) -> None:
        self.state = (0, NOTHING)  # lineage and version
        self.keys: set[Key] = set()
        self.kept: set[Key] = set()  # with members whose sessions are kept; these are on disk
        self.nbytes = 0
        self.answers_waiting = 0  # for the disk

    def take(self, table: dict[Key, Members], *, is_whole: bool) -> None:
        """A PeerError if the peer would have more groups than anybody may."""
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


class Roster:
    """One broker's side of it."""

    def __init__(self, shared: Shared, groups: Groups, *, lineage: int, send: Send) -> None:
        self._journal = shared.journal
        self.groups = groups
        self._send = send
        self._lineage = lineage
        self._version = 0
        self._own: dict[Key, Members] = {}
        self._own_bytes = 0
        self._replicas = ReplicatedState()
        self._changed: dict[str, set[Key]] = {}  # since what each connected peer was last sent
        self._theirs: dict[str, _Theirs] = {}
        self._is_full = False

    def restore(self, rows: Iterable[tuple[str, str, str]]) -> None:
        """What peers had when this broker was last there."""
        for peer, name, topic_filter in rows:
            self._theirs.setdefault(peer, _Theirs()).kept.add((name, topic_filter))
            self.groups.put(peer, (name, topic_filter), Members(0, 1))

    # Ours -----------------------------------------------------------------------------------------

    def has_room_for(self, key: Key) -> bool:
        """May a client here begin this group?"""
        return key in self._own or (
            len(self._own) < GROUPS_MAX and self._own_bytes + _size(key) <= GROUPS_BYTES_MAX
        )

    def group_changed(self, group: Group) -> None:
        """Members came, went, or changed."""
        self.groups.put_here(group)
        key = group.key
        members = Members(group.connected, group.kept)
        before = self._own.get(key, Members(0, 0))
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
        """It will not come back."""
        self._changed.pop(name, None)
        theirs = self._theirs.pop(name, None)
        for key in () if theirs is None else theirs.kept:
            self._journal.save_peer_group(name, *key, None)
        self.groups.replace(name, {})
        self._replicas.forget(name)

    def flush(self) -> None:
        """Tell the peers what changed. For the end of a turn: many changes, one frame."""
        self._replicas.send(self._version, self._send_rows)

    def _send_rows(self, name: str, since: int) -> bool:
        keys = self._own if since == NOTHING else self._changed[name]
        rows = [GroupRow(*key, *self._own.get(key, (0, 0))) for key in keys]
        body = encode(GroupRows(self._lineage, since, self._version, rows))
        is_sent = self._send(name, GROUPS, body)
        if is_sent:
            self._changed[name] = set()
        return is_sent

    def answered(self, name: str, kind: int, body: bytes) -> None:
        """GROUPS_KNOWN or GROUPS_LOST came from a peer."""
        if name not in self._replicas:
            return
        version, own_state = NOTHING, (0, 0)
        if kind == GROUPS_KNOWN:
            known = decoded(known_decoder, body)
            self._outlive(known)
            if known.lineage == self._lineage:
                version, own_state = known.version, known.own_state
        self._replicas.answered(name, version, own_state)
        self.flush()

    def _outlive(self, known: Known) -> None:
        """If the peer knows a later life of us, as with sketches."""
        lineage = known.outlived(self._lineage, self._version)
        if lineage != self._lineage:
            self._lineage = lineage
            self._replicas.restart()

    @property
    def is_synchronous(self) -> bool:
        """We have all live peers' groups, as far as they had come when they first knew of us."""
        return self._replicas.has_peers_states(self._state_of)

    def _state_of(self, name: str) -> tuple[int, int]:
        return self._theirs[name].state if name in self._theirs else (0, 0)

    # Who waits ------------------------------------------------------------------------------------

    def when_known(self, deadline: float, act: Callable[[], None]) -> None:
        """Act when all live peers know our groups as they are now, or it is this late."""
        self._replicas.wait(self._version, deadline, act)

    def tick(self, now: float) -> int:
        """How many had to go without."""
        return self._replicas.tick(now)

    # From the peers -------------------------------------------------------------------------------

    def receive(self, name: str, body: bytes, answer: Answer) -> None:
        """GROUPS came from a peer."""
        told = decoded(group_rows_decoder, body)
        rows_before = self._journal.rows_written
        theirs = self._theirs.get(name) or _Theirs()
        state = (told.lineage, told.version)
        is_whole = told.since == NOTHING
        if state > theirs.state:  # what comes late, over a connection that is no more, is older
            if not is_whole and (told.lineage, told.since) != theirs.state:
                answer(GROUPS_LOST, b"")
                return
            table = {_checked(row): Members(row.connected, row.kept) for row in told.rows}
            theirs.take(table, is_whole=is_whole)
            theirs.state = state
            self._theirs[name] = theirs
            self._keep(name, theirs, table, is_whole=is_whole)
            if is_whole:
                self.groups.replace(name, table)
            else:
                for key, members in table.items():
                    self.groups.put(name, key, members)
        body = encode(Known(*theirs.state, self._lineage, self._version))
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
        self, name: str, theirs: _Theirs, table: dict[Key, Members], *, is_whole: bool
    ) -> None:
        kept = {key for key, members in table.items() if members.kept}
        gone = theirs.kept - kept if is_whole else theirs.kept & (table.keys() - kept)
        for key in kept - theirs.kept:
            self._journal.save_peer_group(name, *key, 1)
        for key in gone:
            self._journal.save_peer_group(name, *key, None)
        theirs.kept = theirs.kept - gone | kept


def _size(key: Key) -> int:
    name, topic_filter = key
    return len(name.encode()) + len(topic_filter.encode()) + _ROW_BYTES


def _checked(row: GroupRow) -> Key:
    try:
        check_key(f"{SHARE_PREFIX}/{row.name}/{row.filter}")
    except ClientError as error:
        raise PeerError(f"a group that there cannot be: {error.message}") from error
    if "/" in row.name:
        raise PeerError("a group with a separator in its name")
    return row.name, row.filter
