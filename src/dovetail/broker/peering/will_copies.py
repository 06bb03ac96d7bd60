"""Wills outlive their broker: another one keeps them, and publishes them when it dies. Pure.

    owner                                   keeper: the next one that is up, by name
      | -- WILLS: all of them ------------> |   when it becomes the keeper, or is connected anew
      | -- WILLS: what changed -----------> |
      | -- WILLS: none -------------------> |   to all others: what they have of ours is void
      x dies, or leaves
                                            | publishes each when its delay is over
      | <= WillDone ======================= |   so that the owner, when it is back, does not

Rules:

- A client that connects anywhere in the meantime takes its will back, as it does at one broker
  [MQTT-3.1.3-9]. It has some seconds for that, whatever the delay. Another user under its client
  identifier does not.
- A broker that starts waits with the wills of its last life until others had time to say which of
  them are done.
- There is one keeper, in memory. If it dies with the owner, the owner publishes when it is back.
- Who was the keeper, of this life of ours or the last, is told that it is not any more: at once, or
  as soon as there is a connection to it.
"""

from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from dovetail.broker.peering.limits import SECONDS_MAX, WILL_GRACE_SECONDS, WILLS_FRAME_BYTES
from dovetail.broker.peering.peer_messages import WILLS, KeptWill, WillsBody, encode
from dovetail.broker.peering.stream_messages import WillDone, packed
from dovetail.broker.peering.tickets import Ticket
from dovetail.broker.session import Session
from dovetail.broker.session_lifetime import Lifetimes, will_message
from dovetail.broker.shared_state import Shared
from dovetail.codec.packets import Will
from dovetail.errors import ClientError, PeerError
from dovetail.messages import Message
from dovetail.topics.names import SYS_PREFIX, check_name

Post = Callable[[str, Message, bool, Ticket | None], None]


class _Kept(Struct):
    """A will of another broker's client."""

    stamp: int
    will: Will
    left_seconds: float | None
    """Of its delay; None while the client is connected."""
    since: float
    user: str | None
    due: float | None = None
    """Set when its broker has died."""


class Wills:
    """Ours at another broker, and others' here."""

    def __init__(
        self,
        name: str,
        shared: Shared,
        lifetimes: Lifetimes,
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
        """Who may have wills of ours, and has to hear that they are void."""
        self._may_choose = True
        """Has it been a while since we looked who is up?"""
        self._changed: dict[str, None] = {}
        """Clients whose wills the keeper has to hear about, in order."""
        self._kept: dict[str, dict[str, _Kept]] = {}
        """By broker and client."""
        self._dead: set[str] = set()
        lifetimes.will_changed = self._note

    # Ours -----------------------------------------------------------------------------------------

    def _note(self, session: Session) -> None:
        self._changed[session.client_id] = None
        if session.link is None and session.ended_at is None:
            # It is about to be connected.
            self.came(session.client_id, session.user, session.stamp, self._name)

    def flush(self) -> None:
        """Tell the keeper what changed; a new one all there is."""
        if not self._changed and not self._may_choose:
            return
        self._may_choose = False
        # Who is late, and there is nobody else, is better than none.
        keeper = self._choose() or self._keeper
        if keeper != self._keeper:
            if self._keeper:
                self._others[self._keeper] = None
            self._keeper = keeper
            self._tell_keeper(list(self._lifetimes.sessions), is_whole=True)
            self._changed.clear()
        elif self._changed:
            changed, self._changed = self._changed, {}
            self._tell_keeper(changed, is_whole=False)
        if self._others and self._keeper:
            self._tell_others()

    def _tell_keeper(self, client_ids: Iterable[str], *, is_whole: bool) -> None:
        keeper = self._keeper
        if keeper and not self._tell(keeper, client_ids, is_whole=is_whole):
            self._keeper = ""  # again, with the next turn
            self._others[keeper] = None  # it may be another then, and this one has some

    def _tell_others(self) -> None:
        """When there is a keeper, and after it: better two that have them than none."""
        self._others.pop(self._keeper, None)
        nothing = encode(WillsBody(True, []))
        for name in list(self._others):
            if self._send(name, WILLS, nothing):
                del self._others[name]

    def _choose(self) -> str:
        up = sorted(self._peers_up())
        return next((name for name in up if name > self._name), up[0] if up else "")

    def peer_is_up(self, name: str) -> None:
        """It may have wills from before."""
        self._others[name] = None
        self._may_choose = True

    def peer_is_down(self, name: str) -> None:
        if name == self._keeper:
            self._keeper = ""  # it may come back without a memory
        self._others.pop(name, None)
        self._may_choose = True

    def _tell(self, keeper: str, client_ids: Iterable[str], *, is_whole: bool) -> bool:
        wills: list[KeptWill] = []
        size = 0
        for client_id in client_ids:
            will = self._ours(client_id)
            if is_whole and will.will is None:
                continue
            wills.append(will)
            size += len(client_id) + len(will.will or b"") + 32
            if size > WILLS_FRAME_BYTES:
                if not self._send(keeper, WILLS, encode(WillsBody(is_whole, wills))):
                    return False
                wills, size, is_whole = [], 0, False
        if wills or is_whole:
            return self._send(keeper, WILLS, encode(WillsBody(is_whole, wills)))
        return True

    def _ours(self, client_id: str) -> KeptWill:
        session = self._lifetimes.sessions.get(client_id)
        if session is None or session.will is None:
            return KeptWill(client_id, 0, None, None)
        left = None
        if session.ended_at is not None:
            left = max(session.ended_at + session.will.delay_seconds - self._shared.now, 0.0)
            left = min(left, SECONDS_MAX)  # our clock may have been set back
        will = self._shared.encode_will(session.will)
        return KeptWill(client_id, session.stamp, will, left, session.user)

    # Others' --------------------------------------------------------------------------------------

    def receive(self, owner: str, body: WillsBody) -> None:
        kept = self._kept.setdefault(owner, {})
        if body.is_whole:
            kept.clear()
        for one in body.wills:
            if one.will is None:
                kept.pop(one.client_id, None)
            else:
                will = self._decode(one.will)
                kept[one.client_id] = _Kept(
                    one.stamp, will, one.left_seconds, self._shared.now, one.user
                )

    def _decode(self, data: bytes) -> Will:
        """What could not be published one day is not kept."""
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
        for kept in self._kept.get(name, {}).values():
            kept.due = None
            if not is_live:
                delay = kept.will.delay_seconds
                left = delay if kept.left_seconds is None else kept.since + kept.left_seconds - now
                kept.due = now + max(left, WILL_GRACE_SECONDS)

    def came(self, client_id: str, user: str | None, stamp: int, where: str) -> None:
        """The client has connected there."""
        for owner, wills in self._kept.items():
            kept = wills.get(client_id)
            if kept is None or kept.stamp >= stamp:
                continue
            if not self._shared.ownership.may_resume(kept.user, user):
                continue
            if owner == where:
                del wills[client_id]  # it will tell us of the new one
            else:
                self._done(owner, client_id)

    def tick(self, now: float) -> None:
        self._may_choose = True
        for owner in list(self._dead):
            due = [
                client_id
                for client_id, kept in self._kept.get(owner, {}).items()
                if kept.due is not None and kept.due <= now
            ]
            for client_id in due:
                kept = self._done(owner, client_id)
                self._publish(will_message(kept.will, client_id, now))

    def _done(self, owner: str, client_id: str) -> _Kept:
        kept = self._kept[owner].pop(client_id)
        self._post(owner, packed(WillDone(client_id, kept.stamp)), True, None)
        return kept

    def take(self, item: WillDone) -> None:
        """Another broker has published a will of ours, or its client is back elsewhere."""
        self._lifetimes.will_is_done(item.client_id, item.stamp)

    def forget(self, name: str) -> None:
        self._kept.pop(name, None)
        self._dead.discard(name)
