"""Hears what happens to sessions (session_lifetime.py). Pure."""

from dovetail.broker.session import Session


class SessionObserver:
    """Hears of sessions that begin, change and end. An observer overrides what it needs."""

    def persistence_changed(self, client_id: str, is_persistent: bool) -> None:
        """A client got a session that is persistent or not, or its session ended."""

    def session_ended(self, session: Session) -> None:
        """A session has ended, and has begun to be cleared."""

    def will_changed(self, session: Session) -> None:
        """A session's will may have changed, or its client has come or gone."""
