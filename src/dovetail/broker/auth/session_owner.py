"""The rules about the owner of a session: the user who began it. Pure.

Rules:

- A user who connects with the client identifier of another user's session is refused, and the
  session stays as it is. All clients that did not log in count as one user.
- With `access.session_takeover` the other user is admitted. That ends the session and begins a new
  one, so messages for one user are never delivered to another.
- If everybody has to log in (`access.anonymous = "never"`), a session without a user is older than
  that setting. The first user who connects with its client identifier owns it.
"""

from typing import Final, NamedTuple

from dovetail.errors import ReasonCode

OTHER_OWNER: Final = (
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    "another user has a session with this client identifier: use another one",
)
"""The refusal of a client that connects as another user."""


class OwnershipRules(NamedTuple):
    """The rules of one broker. In a cluster the broker that has the session decides."""

    allows_takeover: bool = False
    """May another user end a session?"""
    needs_name: bool = False
    """Does everybody have to log in?"""

    def may_resume(self, owner: str | None, user: str | None) -> bool:
        """May `user` continue the session of `owner`? None is a client that did not log in."""
        return owner == user or (owner is None and self.needs_name)

    def may_connect(self, owner: str | None, user: str | None) -> bool:
        """May `user` connect with the client identifier of a session of `owner`?"""
        return self.allows_takeover or self.may_resume(owner, user)
