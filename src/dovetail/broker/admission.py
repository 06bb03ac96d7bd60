"""From CONNECT to CONNACK: the broker admits or refuses a client. Pure.

- `refusal` checks everything that does not depend on the user. Then the shell authenticates.
- An authenticated client is still refused if there are too many clients, if its will could not be
  published, if our CONNACK is larger than it accepts, or if its session belongs to another user
  (broker/auth/session_owner.py).
- Only then does the client get its session (session_lifetime.py). A refused client changes nothing.
- A request for a handle (mailbox.py) resumes its session or is refused. It never begins a new one
  for a handle that exists already.
- A client whose persistent session has ended waits until the disk has forgotten that session, so
  that a crash after CONNACK cannot bring it back. If the disk fails, the client is refused.
"""

import logging
from collections.abc import Generator
from functools import lru_cache
from random import Random

from dovetail import codec
from dovetail.broker.auth.access import AccessRules
from dovetail.broker.auth.session_owner import OTHER_OWNER
from dovetail.broker.client_link import ClientLink, LinkState
from dovetail.broker.keep_alive import KeepAlive
from dovetail.broker.limits import CONNACKS_CACHED_MAX, HANDLE_PREFIX
from dovetail.broker.other_brokers import OtherBrokers
from dovetail.broker.peering.roaming.redirect import NEVER_BEGUN
from dovetail.broker.router import Router
from dovetail.broker.session import Session
from dovetail.broker.session_lifetime import SessionLifetimes
from dovetail.broker.shared_state import SharedState
from dovetail.broker.subscribe import SubscribeHandler
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5, SESSION_NEVER_EXPIRES, Connack, Connect, Will
from dovetail.errors import ClientError, ReasonCode
from dovetail.slices import SliceScheduler, Work
from dovetail.topics.names import SYS_PREFIX

log = logging.getLogger("dovetail.broker")

Refusal = tuple[ReasonCode, str]


class Admission:
    """Decides for one broker which clients may connect."""

    def __init__(
        self,
        shared: SharedState,
        slices: SliceScheduler,
        router: Router,
        lifetimes: SessionLifetimes,
        subscribe_handler: SubscribeHandler,
        keep_alive: KeepAlive,
        random: Random,
        rules: AccessRules,
        others: OtherBrokers,
    ) -> None:
        self.rules = rules
        self._others = others
        self._shared = shared
        self._slices = slices
        self._router = router
        self._lifetimes = lifetimes
        self._subscribe_handler = subscribe_handler
        self._keep_alive = keep_alive
        self._random = random
        # Most answers are the same bytes.
        self._common_connack = lru_cache(CONNACKS_CACHED_MAX)(self._encode_connack)

    def refusal(self, packet: Connect) -> Refusal | None:
        """Return why this CONNECT is refused for every user, or None."""
        limits = self._shared.limits
        if packet.authentication_method is not None:
            # There is no method we know [MQTT-4.12.0-1].
            return (
                ReasonCode.BAD_AUTHENTICATION_METHOD,
                "no enhanced authentication is supported here",
            )
        if len(packet.client_id.encode()) > limits.client_id_bytes_max:
            return (
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
                f"a client identifier has at most {limits.client_id_bytes_max:,} bytes here",
            )
        if packet.client_id.startswith(HANDLE_PREFIX):
            return (
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
                f"client identifiers that begin with {HANDLE_PREFIX!r} are the broker's own",
            )
        if not packet.client_id and packet.version == MQTT_3_1_1 and not packet.clean_start:
            # [MQTT3-3.1.3-8]
            return (
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
                "a persistent session needs a client identifier",
            )
        return None

    def admit(
        self, link: ClientLink, packet: Connect, user: str | None, stamp: int | None = None
    ) -> None:
        """Give an authenticated client its session, or refuse it [MQTT-3.1.4-4].

        `stamp` orders this connection among those of all brokers. It is None until the other
        brokers have been asked for the session.
        """
        if link.state is not LinkState.ADMITTING:
            return
        assigned = None
        if not packet.client_id:  # [MQTT-3.1.3-6]
            assigned = packet.client_id = f"auto-{self._random.getrandbits(96):024x}"
        link.access = self.rules.for_client(user, packet.client_id)
        refusal = self._refuse_client(link, packet, user)
        if refusal is not None:
            link.refuse(*refusal)
            return
        wanted = packet.session_expiry_seconds
        if packet.version == MQTT_3_1_1:
            wanted = 0 if packet.clean_start else SESSION_NEVER_EXPIRES
        expiry_seconds = min(wanted, self._shared.limits.session_expiry_max_seconds)
        link.keep_alive_seconds = self._keep_alive_seconds(packet)
        data = self._connack(link, packet, expiry_seconds, assigned)
        if not link.is_small_enough(data):  # [MQTT-3.1.2-24]
            link.refuse(ReasonCode.PACKET_TOO_LARGE, "the answer is too large for the client")
            return
        if stamp is None and self._others.have_sessions and not assigned:
            self._claim(link, packet, user)
            return
        if packet.is_handle and not packet.clean_start and not self._has_begun(packet.client_id):
            link.refuse(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "there is no such session")
            return
        self._lifetimes.end_previous(packet, user)
        session = self._lifetimes.sessions.get(packet.client_id)
        if self._lifetimes.is_being_deleted(packet.client_id):
            self._admit_later(link, packet, user, stamp)
        elif session is not None and session.rules is not self.rules:
            self._slices.begin(self._admit_reviewed(session, link, packet, user, stamp))
        else:
            self._let_in(link, packet, user, expiry_seconds, assigned, data, stamp or 0)

    def _let_in(
        self,
        link: ClientLink,
        packet: Connect,
        user: str | None,
        expiry_seconds: int,
        assigned: str | None,
        data: bytes,
        stamp: int,
    ) -> None:
        """Connect an admitted client to its session. `data` is the answer for a new session."""
        session, is_present = self._lifetimes.session_for(packet.client_id, user)
        session.is_loss_unconfirmed = session.is_loss_unconfirmed or session.stamp == NEVER_BEGUN
        if session.is_loss_unconfirmed:
            # The client had another session, and our CONNACK that said so may be lost.
            is_present = False
        if packet.clean_start:
            session.void_before = stamp
        session.rules = self.rules
        self._lifetimes.begin(session, user, expiry_seconds, packet.will, stamp)
        self._keep_alive.begin(link)
        self._shared.gauges.clients_connected += 1
        self._shared.counters.connections_accepted += 1
        log.debug("%r connected from %s", packet.client_id, link.remote.address)
        if is_present:
            data = self._connack(link, packet, expiry_seconds, assigned, session_present=True)
        link.admitted(session, packet, data)
        window = min(packet.receive_max, self._shared.limits.inflight_max)
        session.resume(link, window, self._shared.now)
        if self._router.is_in_groups(session):
            self._slices.begin(self._router.presence_changed(session))

    def _admit_reviewed(
        self,
        session: Session,
        link: ClientLink,
        packet: Connect,
        user: str | None,
        stamp: int | None,
    ) -> Work:
        """Apply the current access rules to the session, then admit its client.

        The session may come from a broker with other rules, or the rules have just changed.
        """
        yield from self.review(session)
        self.admit(link, packet, user, stamp)
        link.resume()

    def review(self, session: Session) -> Generator[None, None, int]:
        """Remove subscriptions, queued messages and a will that the rules now forbid.

        Return the number of removed subscriptions.
        """
        rules = self.rules
        access = rules.for_client(session.user, session.client_id)
        dropped = 0
        if not access.everything:
            if session.will is not None and not access.may_publish(session.will.topic):
                self._lifetimes.drop_will(session)
            # Subscriptions first: a message that still arrives by one is queued, and checked below.
            dropped = yield from self._subscribe_handler.drop_forbidden(session, access)
            yield from session.drop_queued(lambda message: not access.may_read(message.topic))
        session.rules = rules
        return dropped

    def _has_begun(self, client_id: str) -> bool:
        """Is there a session that a client began, not only one that holds early messages?"""
        session = self._lifetimes.sessions.get(client_id)
        return session is not None and session.stamp != NEVER_BEGUN

    def _refuse_client(self, link: ClientLink, packet: Connect, user: str | None) -> Refusal | None:
        if not self._lifetimes.may_connect(packet.client_id, user):
            return OTHER_OWNER
        if self._is_full_for(packet.client_id):
            return ReasonCode.SERVER_BUSY, "the broker has as many clients as are allowed"
        if not self._lifetimes.has_room_for(packet.client_id):
            # Checked before the claim, so that a session at another broker stays there.
            return ReasonCode.QUOTA_EXCEEDED, "the broker has as many sessions as are allowed"
        return self._refuse_will(link, packet.will)

    def _claim(self, link: ClientLink, packet: Connect, user: str | None) -> None:
        def act(stamp: int | ClientError) -> None:
            if link.state is not LinkState.ADMITTING:
                return
            if isinstance(stamp, ClientError):
                link.refuse(stamp.reason, stamp.message)
            else:
                self.admit(link, packet, user, stamp)
                link.resume()

        self._others.claim(
            packet.client_id, user, packet.clean_start, act, may_begin=not packet.is_handle
        )

    def _admit_later(
        self, link: ClientLink, packet: Connect, user: str | None, stamp: int | None
    ) -> None:
        def act(gone: bool) -> None:
            if link.state is not LinkState.ADMITTING:
                return
            if gone:
                self.admit(link, packet, user, stamp)
                link.resume()
            else:
                link.refuse(
                    ReasonCode.SERVER_UNAVAILABLE, "the client's last session is still on disk"
                )

        self._lifetimes.when_deleted(packet.client_id, user, act)

    def _is_full_for(self, client_id: str) -> bool:
        """Is the connection limit reached? A take-over needs no additional connection."""
        if self._shared.gauges.clients_connected < self._shared.limits.connections_max:
            return False
        session = self._lifetimes.sessions.get(client_id)
        return session is None or session.link is None

    def _refuse_will(self, link: ClientLink, will: Will | None) -> Refusal | None:
        if will is None:
            return None
        limits = self._shared.limits
        try:
            self._router.check(will.topic)
        except ClientError as error:
            return error.reason, error.message
        if will.qos > limits.maximum_qos:  # [MQTT-3.2.2-12]
            return ReasonCode.QOS_NOT_SUPPORTED, "the will's QoS is not supported here"
        if will.retain and not limits.retain_available:  # [MQTT-3.2.2-13]
            return ReasonCode.RETAIN_NOT_SUPPORTED, "retained messages are switched off here"
        if not link.access.may_publish(will.topic) or will.topic.startswith(SYS_PREFIX):
            return ReasonCode.NOT_AUTHORIZED, "the will may not be published to its topic"
        return None

    def _keep_alive_seconds(self, packet: Connect) -> int:
        limit = self._shared.limits.keep_alive_max_seconds
        if packet.is_handle:
            return 0  # a poll sends nothing while it waits
        # A 3.1.1 CONNACK cannot carry a server keep alive.
        if packet.version == MQTT_5 and limit and not 0 < packet.keep_alive_seconds <= limit:
            return limit
        return packet.keep_alive_seconds

    def _connack(
        self,
        link: ClientLink,
        packet: Connect,
        expiry_seconds: int,
        assigned: str | None,
        *,
        session_present: bool = False,
    ) -> bytes:
        """Return the packet that admits a client. It says where the broker's values are others."""
        version = packet.version
        if version != MQTT_5:
            return self._common_connack(version, session_present)
        expiry = expiry_seconds if expiry_seconds != packet.session_expiry_seconds else None
        keep_alive: int | None = link.keep_alive_seconds
        if keep_alive == packet.keep_alive_seconds:  # [MQTT-3.2.2-21]
            keep_alive = None
        if assigned is not None:
            return self._encode_connack(version, session_present, expiry, keep_alive, assigned)
        return self._common_connack(version, session_present, expiry, keep_alive)

    def _encode_connack(
        self,
        version: int,
        session_present: bool,
        expiry_seconds: int | None = None,
        keep_alive_seconds: int | None = None,
        assigned: str | None = None,
    ) -> bytes:
        limits = self._shared.limits
        answer = Connack(
            session_present,
            ReasonCode.SUCCESS,
            session_expiry_seconds=expiry_seconds,
            receive_max=limits.receive_max,
            maximum_qos=limits.maximum_qos if limits.maximum_qos < 2 else None,
            retain_available=limits.retain_available,
            packet_bytes_max=limits.packet_bytes_max,
            assigned_client_id=assigned,
            alias_max=limits.alias_in_max,
            keep_alive_seconds=keep_alive_seconds,
        )
        return codec.encode(version, answer)
