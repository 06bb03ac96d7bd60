"""Wills outlive their broker: another broker has copies, and publishes them when it dies. Pure.

    owner                                   keeper: the next one that is up, by name
      | -- WILLS: all of them ------------> |   when it becomes the keeper, or reconnects
      | -- WILLS: changes ----------------> |
      | -- WILLS: none -------------------> |   to all others: their copies are void
      x dies, or leaves
                                            | publishes each when its delay is over
      | <= WillDone ======================= |   so that the owner, when it is back, does not

Rules:

- A client that connects anywhere in the meantime cancels its will, as at a single broker
  [MQTT-3.1.3-9]. It has some seconds for that, whatever the delay. Another user with the same
  client identifier does not cancel it.
- A starting broker does not publish the wills of its last life before others had time to say which
  are done.
- There is one keeper, in memory. If it dies with the owner, the owner publishes when it is back.
- A former keeper, of this life or the last one, is told that its copies are void: at once, or as
  soon as there is a connection.
"""

from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from dovetail.broker.peering.control_messages import WillDone, pack
from dovetail.broker.peering.limits import SECONDS_MAX, WILL_GRACE_SECONDS, WILLS_FRAME_BYTES
from dovetail.broker.peering.peer_messages import WILLS, WillCopy, WillsUpdate, encode
from dovetail.broker.peering.tickets import Post
from dovetail.broker.session import Session
from dovetail.broker.session_lifetime import SessionLifetimes, will_message
from dovetail.broker.session_observer import SessionObserver
from dovetail.broker.shared_state import SharedState
from dovetail.codec.packets import Will
from dovetail.errors import ClientError, PeerError
from dovetail.messages import Message
from dovetail.topics.names import SYS_PREFIX, check_name


class _HeldWill(Struct):
    """A will of another broker's client."""

    stamp: int
    will: Will
    left_seconds: float | None
    """The rest of its delay; None while the client is connected."""
    since: float
    user: str | None
    due: float | None = None
    """When to publish it. Set when its broker has died."""


class WillCopies(SessionObserver):
    """Our wills at another broker, and others' wills here."""

    def __init__(
        self,
        name: str,
        shared: SharedState,
        lifetimes: SessionLifetimes,
        *,
        send: Callable[[str, int, bytes], bool],
        post: Post,
        publish: Callable[[Message], None],
        peers_up: Callable[[], Iterable[str]],
    ) -> None:
        self._name = name
        self._shared = shared
        self._lifetimes = lifetimes
        self._send = send
        self._post = post
        self._publish = publish
        self._peers_up = peers_up
        self._keeper = ""
        self._others: dict[str, None] = {}
        """Brokers that may have copies of our wills, and have to hear that these are void."""
        self._may_choose = True
        """May the keeper change in this turn?"""
        self._changed: dict[str, None] = {}
        """Clients whose wills have changed since the last update to the keeper, in order."""
        self._copies: dict[str, dict[str, _HeldWill]] = {}
        """Copies of others' wills, by broker and client."""
        self._dead: set[str] = set()
        lifetimes.observe(self)

    # Ours -----------------------------------------------------------------------------------------

    def will_changed(self, session: Session) -> None:
        self._changed[session.client_id] = None
        if session.link is None and session.ended_at is None:
            # It is about to be connected.
            self.came(session.client_id, session.user, session.stamp, self._name)

    def flush(self) -> None:
        """Send changes to the keeper, or all wills to a new keeper."""
        if not self._changed and not self._may_choose:
            return
        self._may_choose = False
        # A stalled keeper is better than none.
        keeper = self._choose() or self._keeper
        if keeper != self._keeper:
            if self._keeper:
                self._others[self._keeper] = None
            self._keeper = keeper
            self._update_keeper(list(self._lifetimes.sessions), is_whole=True)
            self._changed.clear()
        elif self._changed:
            changed, self._changed = self._changed, {}
            self._update_keeper(changed, is_whole=False)
        if self._others and self._keeper:
            self._clear_others()

    def _update_keeper(self, client_ids: Iterable[str], *, is_whole: bool) -> None:
        keeper = self._keeper
        if keeper and not self._send_wills(keeper, client_ids, is_whole=is_whole):
            self._keeper = ""  # try again in the next turn
            self._others[keeper] = (
                None  # the next keeper may be another, and this one has some copies
            )

    def _clear_others(self) -> None:
        """Tell former keepers, after the new keeper has its copies: better two sets than none."""
        self._others.pop(self._keeper, None)
        nothing = encode(WillsUpdate(True, []))
        for name in list(self._others):
            if self._send(name, WILLS, nothing):
                del self._others[name]

    def _choose(self) -> str:
        up = sorted(self._peers_up())
        return next((name for name in up if name > self._name), up[0] if up else "")

    def peer_is_up(self, name: str) -> None:
        """Note a connection: the peer may have earlier copies of our wills."""
        self._others[name] = None
        self._may_choose = True

    def peer_is_down(self, name: str) -> None:
        if name == self._keeper:
            self._keeper = ""  # it may come back without a memory
        self._others.pop(name, None)
        self._may_choose = True

    def _send_wills(self, keeper: str, client_ids: Iterable[str], *, is_whole: bool) -> bool:
        wills: list[WillCopy] = []
        size = 0
        for client_id in client_ids:
            will = self._ours(client_id)
            if is_whole and will.will is None:
                continue
            wills.append(will)
            size += len(client_id) + len(will.will or b"") + 32
            if size > WILLS_FRAME_BYTES:
                if not self._send(keeper, WILLS, encode(WillsUpdate(is_whole, wills))):
                    return False
                wills, size, is_whole = [], 0, False
        if wills or is_whole:
            return self._send(keeper, WILLS, encode(WillsUpdate(is_whole, wills)))
        return True

    def _ours(self, client_id: str) -> WillCopy:
        session = self._lifetimes.sessions.get(client_id)
        if session is None or session.will is None:
            return WillCopy(client_id, 0, None, None)
        left = None
        if session.ended_at is not None:
            left = max(session.ended_at + session.will.delay_seconds - self._shared.now, 0.0)
            left = min(left, SECONDS_MAX)  # our clock may have been set back
        will = self._shared.encode_will(session.will)
        return WillCopy(client_id, session.stamp, will, left, session.user)

    # Others' --------------------------------------------------------------------------------------

    def receive(self, owner: str, body: WillsUpdate) -> None:
        kept = self._copies.setdefault(owner, {})
        if body.is_whole:
            kept.clear()
        for one in body.wills:
            if one.will is None:
                kept.pop(one.client_id, None)
            else:
                will = self._decode(one.will)
                kept[one.client_id] = _HeldWill(
                    one.stamp, will, one.left_seconds, self._shared.now, one.user
                )

    def _decode(self, data: bytes) -> Will:
        """Return the will. Raise a PeerError for one that could not be published later."""
        try:
            will = self._shared.decode_will(data)
            check_name(will.topic)
        except (msgspec.DecodeError, UnicodeDecodeError, ClientError) as error:
            raise PeerError(f"a will that cannot be read: {error}") from error
        times = (will.delay_seconds, will.expiry_seconds or 0)
        if not (0 <= will.qos <= 2 and all(0 <= seconds <= SECONDS_MAX for seconds in times)):
            raise PeerError("a will of no QoS, or of no time")
        if will.topic.startswith(SYS_PREFIX):
            raise PeerError("a will that no client may have")
        return will

    def peer_is_live(self, name: str, is_live: bool) -> None:
        if is_live:
            self._dead.discard(name)
        elif name not in self._dead:
            self._dead.add(name)
        else:
            return
        now = self._shared.now
        for kept in self._copies.get(name, {}).values():
            kept.due = None
            if not is_live:
                delay = kept.will.delay_seconds
                left = delay if kept.left_seconds is None else kept.since + kept.left_seconds - now
                kept.due = now + max(left, WILL_GRACE_SECONDS)

    def came(self, client_id: str, user: str | None, stamp: int, where: str) -> None:
        """Note that the client has connected at the broker `where`."""
        for owner, wills in self._copies.items():
            kept = wills.get(client_id)
            if kept is None or kept.stamp >= stamp:
                continue
            if not self._shared.ownership.may_resume(kept.user, user):
                continue
            if owner == where:
                del wills[client_id]  # its broker will send the new one
            else:
                self._done(owner, client_id)

    def tick(self, now: float) -> None:
        self._may_choose = True
        for owner in sorted(self._dead):
            due = [
                client_id
                for client_id, kept in self._copies.get(owner, {}).items()
                if kept.due is not None and kept.due <= now
            ]
            for client_id in due:
                kept = self._done(owner, client_id)
                self._publish(will_message(kept.will, client_id, now))

    def _done(self, owner: str, client_id: str) -> _HeldWill:
        kept = self._copies[owner].pop(client_id)
        self._post(owner, pack(WillDone(client_id, kept.stamp)), True, None)
        return kept

    def take(self, message: WillDone) -> None:
        """Drop a will that another broker has published, or whose client is back elsewhere."""
        self._lifetimes.will_is_done(message.client_id, message.stamp)

    def forget(self, name: str) -> None:
        self._copies.pop(name, None)
        self._dead.discard(name)
