"""A node's own state at its peers: which version each peer has, and what waits for that. Pure.

    node                                         peer
      | -- all of the state, or what changed ---> |   one message at a time: changes meanwhile
      | <- acknowledged: version ---------------- |   go with the next one
      |    or: send all of it ------------------- |

Rules:

- An acknowledgement holds as long as its connection: behind the next one may be a peer that has
  restarted. So each connection begins with all of the state.
- A waiter is due when every live peer has acknowledged its version, or at its deadline. Peers that
  are not live delay nobody.
- Waiters are released in the order in which they began to wait. If one reaches its deadline, all
  that began before it are released first.

The owner has the state and its version, which rises, and encodes what a peer gets.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

NOTHING = -1
"""The version of a peer that needs all of the state."""


@dataclass(slots=True)
class _Replica:
    is_live: bool = False  # as gossip says
    is_up: bool = False  # there is a connection to it
    is_in_flight: bool = False  # it has not answered the last message yet
    acknowledged: int = NOTHING
    own_state: tuple[int, int] = (0, 0)  # its lineage and version when it first acknowledged ours


@dataclass(slots=True)
class _Waiter:
    version: int
    deadline: float
    act: Callable[[], None]


class ReplicatedState:
    """What the peers of one node have of its state."""

    def __init__(self) -> None:
        self._peers: dict[str, _Replica] = {}
        self._waiters: deque[_Waiter] = deque()
        self._sent: int | None = None
        """Nothing can be sent until the version differs from this, or a peer answers or comes."""

    # Peers ----------------------------------------------------------------------------------------

    def __contains__(self, name: str) -> bool:
        return name in self._peers

    def is_live(self, name: str) -> bool:
        return name in self._peers and self._peers[name].is_live

    def peer_is_live(self, name: str, is_live: bool) -> None:
        self._peers.setdefault(name, _Replica()).is_live = is_live
        self._release()

    def peer_is_up(self, name: str, is_up: bool) -> None:
        """A connection to the peer came up, or ended."""
        self._peers[name] = _Replica(self.is_live(name), is_up)
        self._sent = None

    def forget(self, name: str) -> None:
        """The peer will not come back."""
        self._peers.pop(name, None)
        self._release()

    # Messages and answers -------------------------------------------------------------------------

    def is_sent(self, version: int) -> bool:
        """Return whether there is nothing to send of this version now."""
        return version == self._sent

    def send(self, version: int, send: Callable[[str, int], bool]) -> None:
        """Call `send` with each peer that lacks `version` and can be sent to, and what it has.

        `send` returns False if the message could not go.
        """
        if version == self._sent:
            return
        have_gone = True
        for name, peer in self._peers.items():
            if peer.is_up and not peer.is_in_flight and peer.acknowledged < version:
                peer.is_in_flight = send(name, peer.acknowledged)
                have_gone = have_gone and peer.is_in_flight
        self._sent = version if have_gone else None

    def answered(self, name: str, version: int, own_state: tuple[int, int] = (0, 0)) -> None:
        """A known peer acknowledged `version`, or needs all of the state (`NOTHING`)."""
        peer = self._peers[name]
        self._sent = None
        peer.is_in_flight = False
        peer.acknowledged = max(version, NOTHING)
        if not peer.own_state[0]:
            peer.own_state = own_state
        self._release()

    def restart(self) -> None:
        """Versions have a new lineage: no peer has acknowledged any."""
        self._sent = None
        for peer in self._peers.values():
            peer.acknowledged = NOTHING

    def has_peers_states(self, state_of: Callable[[str], tuple[int, int]]) -> bool:
        """Have we got every live peer's own state, as of when the peer first acknowledged ours?

        `state_of` returns the lineage and version that we have of a peer.
        """
        return all(
            peer.own_state[0] and state_of(name) >= peer.own_state
            for name, peer in self._peers.items()
            if peer.is_live
        )

    # Waiters --------------------------------------------------------------------------------------

    def wait(self, version: int, deadline: float, act: Callable[[], None]) -> None:
        """Call `act` once all live peers have acknowledged `version`, or at the deadline."""
        if not self._waiters and self._is_known(version):
            act()
        else:
            self._waiters.append(_Waiter(version, deadline, act))

    def tick(self, now: float) -> int:
        """Release late waiters, and those before them. How many had reached their deadline."""
        late = [place for place, one in enumerate(self._waiters) if one.deadline <= now]
        for place in range(late[-1] + 1 if late else 0):
            self._waiters[place].version = NOTHING  # which every peer has
        self._release()
        return len(late)

    def _is_known(self, version: int) -> bool:
        return all(peer.acknowledged >= version for peer in self._peers.values() if peer.is_live)

    def _release(self) -> None:
        # One by one: an act may begin to wait, too, and then comes after those that are here.
        while self._waiters and self._is_known(self._waiters[0].version):
            self._waiters.popleft().act()
