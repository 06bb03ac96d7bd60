"""The state of one claim: who was asked, what they answered, and what is on its way. Pure.

claimant.py sends and decides claims. claim_responder.py answers the claims of other brokers.
"""

from collections.abc import Callable, Iterable

from dovetail.broker.peering.peer_messages import ClaimReply
from dovetail.broker.peering.roaming.limits import CLAIM_WAIT_SECONDS, MOVE_SECONDS_MAX
from dovetail.errors import ClientError

NOTHING, MOVES, MOVED, NEWER = range(4)
"""Verdicts of CLAIMED: no session here, it moves to you, it has moved, a later claim exists."""

ClaimDone = Callable[[int | ClientError], None]
"""Called once, with the stamp of the connection or with the reason for a refusal."""


class Destination:
    """A broker that a session is on its way to, as another broker says."""

    __slots__ = ("has_arrived", "source", "stamp")

    def __init__(self, source: str, stamp: int) -> None:
        self.source = source
        """The broker that says so; empty for this one."""
        self.stamp = stamp
        """The stamp of the connection that it follows there."""
        self.has_arrived = False
        """Has it arrived there, as far as its last broker knows?"""


class Claim:
    """The claim of one client."""

    def __init__(
        self,
        client_id: str,
        user: str | None,
        stamp: int,
        *,
        is_clean: bool,
        may_begin: bool,
        now: float,
        act: ClaimDone,
    ) -> None:
        """`may_begin`: may it begin anew? A handle (mailbox.py) would lose its subscriptions."""
        self.client_id = client_id
        self.user = user
        self.stamp = stamp
        self.is_clean = is_clean
        self.may_begin = may_begin
        self.began_at = now
        self.deadline = now + CLAIM_WAIT_SECONDS
        self.act = act
        self.asked: set[str] = set()
        """Brokers that have not answered."""
        self.asked_at = now
        self.answers: dict[str, ClaimReply] = {}
        """The last answer of each broker."""
        self.senders: set[str] = set()
        """Brokers from which a session is on its way here."""
        self.arrived_from: set[str] = set()
        """Brokers from which it has come. Items and answers take different connections."""
        self.destinations: dict[str, Destination] = {}
        """Brokers that it may be on its way to, by name."""
        self.ruled_out: set[str] = set()
        """Brokers that we do not reach and that have nothing, as another broker says."""
        self.possible_holders: set[str] = set()
        """Brokers that may have a session, as another broker says."""
        self.unreachable: set[str] = set()
        """Brokers that we do not reach, as we told the others."""
        self.reached: set[str] = set()
        """Those of them that another broker reaches."""
        self.cleared: set[str] = set()
        """Those of them that have nothing, as a broker that reaches them says."""
        self.begins_anew = False
        """Does the client begin anew, and wait for markers only?"""

    @property
    def is_waiting(self) -> bool:
        return bool(self.asked or self.senders or self.begins_anew)

    @property
    def key(self) -> tuple[str, str | None]:
        return self.client_id, self.user

    @property
    def contender(self) -> int:
        """The stamp of another user who asked first, as others say; ours if there is none."""
        stamps = [said.contender for said in self.answers.values()]
        return min((stamp for stamp in stamps if stamp is not None), default=self.stamp)

    def forget_answers(self, names: Iterable[str]) -> None:
        for name in names:
            self.answers.pop(name, None)

    def record(self, name: str, answer: ClaimReply) -> None:
        """Record a broker's answer."""
        said = self.answers.get(name)
        if said is not None and (said.verdict, answer.verdict) == (MOVED, NOTHING):
            self.senders.discard(name)  # it came here before
        self.asked.discard(name)
        self.answers[name] = answer
        self.ruled_out.update(answer.ruled_out)
        self.possible_holders.update(answer.possible_holders)
        self.reached.update(answer.reached)
        self.cleared.update({*answer.ruled_out} & {*answer.reached})
        destination = self.destinations.get(name)
        if destination is not None and (
            destination.has_arrived or is_past(name, answer, destination.stamp)
        ):
            del self.destinations[name]

    def add_destination(self, owner: str, source: str, stamp: int) -> None:
        """Note that the session is on its way to `owner`, unless the owner has had it already."""
        said = self.answers.get(owner)
        if said is None or not is_past(owner, said, stamp):
            self.destinations[owner] = Destination(source, stamp)
            self.deadline = max(self.deadline, self.began_at + MOVE_SECONDS_MAX)

    def uncertain_senders(self) -> set[str]:
        """Return brokers that say it is on its way here, and may not know that it came."""
        said = self.answers
        return {name for name in self.senders if name in said and said[name].verdict == MOVED}

    def update_destinations(self, last_move: tuple[str, int] | None) -> set[str]:
        """Note arrivals; return brokers to ask again. `last_move` is our own last hand-over."""
        for owner, destination in self.destinations.items():
            said = self.answers.get(destination.source)
            if not destination.source:
                destination.has_arrived = last_move is None or last_move[0] != owner
            elif said is not None:
                destination.has_arrived = (said.verdict, said.owner) != (MOVED, owner)
        return {
            *self.destinations,
            *(destination.source for destination in self.destinations.values()),
        } - {""}


def is_past(name: str, answer: ClaimReply, stamp: int) -> bool:
    """Return whether a broker no longer has the session that followed this connection."""
    if answer.verdict == MOVES:
        return True
    is_gone = answer.verdict == NOTHING or (answer.verdict == MOVED and answer.owner != name)
    return is_gone and stamp <= answer.connection
