"""Reconciles the routes of publications: they go to the broker that has a client's session. Pure.

    B == reroute request ==> C    route by this version of my sketch
    C == marker ==> A and B       my publications go to B from here on

Rules:

- A marker stands between two publications in C's streams to A and to B. Publications before it
  reach the client through A, those behind it directly: each of them once.
- C writes its markers when it routes by the sketch that the request names, and not before. Only B
  knows which version has the subscriptions, so only B asks, and only when all of them have come.
- B may not know that A had the session. Then A asks B, and B asks the others. While B is down, A
  goes on redirecting.
- A broker that waits for markers asks again: C may have been killed while it waited for the sketch.
  It asks only brokers that are up. For the others the first request still waits in their outboxes.
- A marker names the broker to which publications go from there on. A ghost closes at markers of
  later connections only: the marker that sent publications here does not close it. If the marker
  names this broker, only a later session here closes it, when that takes the publications. Without
  one the client was not let in here, or has gone on: only the ghost takes them to it.
- A marker may be about a later connection than all that we know. Then we were down or cut off, and
  the marker says where the client is now. We hand over what we have.
- After a cut two brokers may both have a session of a client. The later one is the client's.
  Nothing has to change its way then: publications go to both of them.
"""

from collections.abc import Callable, Iterable, Iterator

from dovetail.broker.peering.control_messages import RerouteMarker, RerouteRequest
from dovetail.broker.peering.roaming.directory import SessionDirectory
from dovetail.broker.peering.roaming.handover_out import HandoverOut
from dovetail.broker.peering.roaming.limits import REROUTE_AGAIN_SECONDS, REROUTES_WAITING_MAX
from dovetail.broker.peering.roaming.redirect import NEVER_BEGUN, Redirect, Redirects, redirect_of
from dovetail.broker.peering.sketch_exchange import SketchExchange
from dovetail.broker.session import Session
from dovetail.broker.session_lifetime import SessionLifetimes
from dovetail.limits import FORGET_SECONDS


class Reconciliation:
    """One broker's part in the reconciliation."""

    def __init__(
        self,
        name: str,
        lifetimes: SessionLifetimes,
        exchange: SketchExchange,
        redirects: Redirects,
        handover_out: HandoverOut,
        *,
        newest: Callable[[str, str | None], int],
        is_up: Callable[[str], bool],
    ) -> None:
        """`newest` returns a client's last stamp here; `is_up`, whether a peer accepts messages."""
        self._name = name
        self._lifetimes = lifetimes
        self._exchange = exchange
        self._redirects = redirects
        self._handover_out = handover_out
        self._newest = newest
        self._is_up = is_up
        self._waiting: dict[tuple[str, str, int, bool], RerouteRequest] = {}
        """Requests that wait for the owner's sketch, by sender, client, stamp and lateness."""

    # The session is here --------------------------------------------------------------------------

    def request_reroute(self, session: Session, *, is_again: bool = False) -> None:
        """Take this broker's publications from now on; ask the others for their markers."""
        if session.redirect is None:
            return
        redirect = redirect_of(session)
        if not redirect.guard or redirect.unready or self._redirects.has_ended(session):
            return
        redirect.requested_at = self._redirects.shared.now
        if "" in redirect.guard:
            marker = RerouteMarker(
                session.client_id, redirect.guard_stamp, self._name, False, session.user
            )
            self._redirects.put_for_each(redirect.holders, marker)
            self.apply_marker("", marker)
            if self._redirects.has_ended(session):
                return
        self._redirects.put_for_each(
            self._reachable(redirect.guard) if is_again else redirect.guard,
            self.reroute_request(
                session.client_id, redirect.guard_stamp, redirect.holders, user=session.user
            ),
        )
        self._redirects.changed(session)

    def reroute_request(
        self,
        client_id: str,
        stamp: int,
        holders: Iterable[str],
        *,
        user: str | None,
        is_clean: bool = False,
        is_late: bool = False,
    ) -> RerouteRequest:
        """Return the request that says that the client is here."""
        sketch = self._exchange.sketch
        return RerouteRequest(
            client_id,
            stamp,
            self._name,
            sorted(holders),
            is_clean,
            user,
            is_late,
            sketch.lineage,
            sketch.version,
        )

    def compare(self, name: str, directory: SessionDirectory) -> Iterator[bool]:
        """Tell a peer, step by step, of each client of which both of us have a session.

        Yields True after each step.
        """
        for client_ids in directory.shared_clients(name):
            for client_id in client_ids:
                session = self._lifetimes.sessions.get(client_id)
                if session is not None and session.stamp != NEVER_BEGUN:
                    request = self.reroute_request(
                        client_id, session.stamp, (name,), user=session.user, is_late=True
                    )
                    self._redirects.put(name, request)
            yield True

    # It is elsewhere ------------------------------------------------------------------------------

    def take_request(self, name: str, request: RerouteRequest) -> None:
        owner = request.owner
        marker = RerouteMarker(
            request.client_id, request.stamp, owner, request.is_clean, request.user
        )
        if owner == self._name:
            self._reroute_from(name, marker)
        elif not self._exchange.routes_by(owner, (request.lineage, request.version)):
            self._wait(name, request)
        elif request.is_late:
            if self._newest(request.client_id, request.user) < request.stamp:
                self._handover_out.give_way(
                    request.client_id,
                    request.user,
                    owner,
                    request.stamp,
                    is_clean=False,
                    sources=set(),
                )
        else:
            self._redirects.put_for_each({*request.holders, owner} - {self._name}, marker)
            self.apply_marker("", marker)

    def _reroute_from(self, name: str, marker: RerouteMarker) -> None:
        """Have publications sent here that still go to a broker which handed a session over to us.

        The question came behind the session, so our sketch has its subscriptions now. If the
        session has not come from everywhere, or has moved on and is still redirected, our sketch
        may lack some: then that broker redirects for longer, and asks again.
        """
        client_id, user = marker.client_id, marker.user
        session = self._lifetimes.sessions.get(client_id)
        is_here = session is not None and session.user == user
        if is_here and self._redirects.is_unready(client_id):
            return
        if not is_here and self._redirects.of_client(client_id, user):
            return
        self._redirects.put(name, marker)
        self.apply_marker("", marker)
        request = self.reroute_request(client_id, marker.stamp, (name,), user=user)
        self._redirects.put_for_each(self._reachable(self._redirects.members()), request)

    def _wait(self, name: str, request: RerouteRequest) -> None:
        """Keep a request until the owner's sketch is here. Without room, its sender asks again."""
        key = (name, request.client_id, request.stamp, request.is_late)
        if key in self._waiting or len(self._waiting) < REROUTES_WAITING_MAX:
            self._waiting[key] = request

    def apply_marker(self, source: str, marker: RerouteMarker) -> None:
        """Apply a marker: the source's publications go directly to the client's new broker."""
        redirects = self._redirects
        client_id = marker.client_id
        if self._newest(client_id, marker.user) < marker.stamp and marker.owner != self._name:
            # We were down, or cut off, when the client connected there.
            self._handover_out.give_way(
                client_id, marker.user, marker.owner, marker.stamp, is_clean=marker.is_clean
            )
        if marker.is_clean:
            redirects.void(client_id, marker.user, marker.stamp)
        is_taken = redirects.has_settled(client_id, marker.user)
        for session in reversed(redirects.of_client(client_id, marker.user)):
            redirect = redirect_of(session)
            is_elsewhere = marker.owner != self._name
            if redirect.owner and session.stamp < marker.stamp and (is_elsewhere or is_taken):
                redirect.open.discard(source)
            redirect.wrote_marker(source, marker.stamp)
            is_taken |= redirects.takes_from(session, source)
            redirects.changed(session)

    # Peers and time -------------------------------------------------------------------------------

    def tick(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for (name, *_), request in waiting.items():
            self.take_request(name, request)

    def check(self, session: Session, now: float) -> None:
        """Ask again for missing markers; called from time to time."""
        self._request_again(session, now)
        if session.redirect is not None and redirect_of(session).owner:
            self._ask_owner(session, redirect_of(session), now)

    def forget(self, name: str) -> None:
        """Forget a broker that will not return."""
        self._waiting = {
            key: request
            for key, request in self._waiting.items()
            if key[0] != name and request.owner != name
        }

    def _request_again(self, session: Session, now: float) -> None:
        if session.redirect is None:
            return
        redirect = redirect_of(session)
        if not redirect.guard or redirect.requested_at + REROUTE_AGAIN_SECONDS > now:
            return
        if redirect.since + FORGET_SECONDS <= now:
            redirect.guard &= {"", *self._redirects.members()}  # others were never heard of here
            self._redirects.changed(session)
        self.request_reroute(session, is_again=True)

    def _reachable(self, names: Iterable[str]) -> list[str]:
        return [name for name in self._redirects.known(names) if self._is_up(name)]

    def _ask_owner(self, ghost: Session, redirect: Redirect, now: float) -> None:
        """Ask the owner to have publications sent there: it may not know that we had the session.

        We cannot ask the others ourselves. The owner may have been down since the session left, and
        a sketch of the owner that we know need not have its subscriptions yet.
        """
        is_missing = "" in redirect.open or bool(self._reachable(redirect.open))
        is_due = max(redirect.asked_at, redirect.since) + REROUTE_AGAIN_SECONDS <= now
        if not (is_missing and is_due and self._reachable((redirect.owner,))):
            return
        redirect.asked_at = now
        request = RerouteRequest(
            ghost.client_id,
            redirect.moved_stamp,
            redirect.owner,
            [self._name],
            is_clean=False,
            user=ghost.user,
            is_late=False,
            lineage=0,
            version=0,
        )
        self._redirects.put(redirect.owner, request)
