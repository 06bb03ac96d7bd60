"""Fetches retained messages from before two brokers met: each peer is asked once. Pure.

    here                                            peer
      | -- WANT: from this place on, and what is  > |   0: from the beginning
      |          here already, as a digest          |
      | <- PAGE: some, and where to go on --------- |   0: that was all

Rules:

- One peer is asked at a time. Mostly the first one has all messages, and the others see by the
  digest that there is nothing to send. But each is asked: it may have a message that is still on
  its way to the rest.
- The pages show the messages as they were at the first page. Later messages go to all peers anyway,
  and of two messages of a topic the later one stays (stamps.py). So any order will do.
- When a peer has sent all its messages, we note its stream on disk. We ask it again if it says that
  its outbox has dropped a message for us.
- If a message finds no room here, we ask all peers again when there is some. Until then this broker
  lacks it, and says so in its log.
- A message that is too large for a peer is not sent to it.
"""

import logging
from collections.abc import Callable, Iterable

from dovetail.broker.peering.limits import RETAINED_AGAIN_SECONDS, RETAINED_PAGE_BYTES
from dovetail.broker.peering.peer_messages import (
    WANT,
    ForwardedPublication,
    RetainedPage,
    RetainedRequest,
    encode,
    to_publication,
)
from dovetail.broker.peering.stamps import Stamps
from dovetail.broker.retained import RetainedMessages
from dovetail.broker.shared_state import SharedState
from dovetail.messages import Message
from dovetail.topics.names import SYS_PREFIX

log = logging.getLogger("dovetail.cluster")


class RetainedSync:
    """Asks peers for their retained messages, and answers their requests."""

    def __init__(
        self,
        shared: SharedState,
        stamps: Stamps,
        retained: RetainedMessages,
        *,
        send: Callable[[str, int, bytes], bool],
    ) -> None:
        self._shared = shared
        self._stamps = stamps
        self._retained = retained
        self._send = send
        self._asked: str | None = None
        self._seen: set[int] = set()
        self._snapshots: dict[str, list[Message]] = {}
        self._again_at = 0.0  # when to ask again for what found no room; 0: nothing is lacking

    # Ours -----------------------------------------------------------------------------------------

    def restore(self, seen: Iterable[int]) -> None:
        self._seen.update(seen)

    def has_seen(self, stream: int) -> bool:
        return stream in self._seen

    def forget_seen(self, stream: int) -> None:
        if stream in self._seen:
            self._seen.discard(stream)
            self._shared.journal.save_seen(stream, None)

    def tick(self) -> None:
        """Ask all peers again if there is room for a message that found none."""
        lacking_bytes = self._retained.lacking_bytes
        if not lacking_bytes:
            return
        now = self._shared.now
        if not self._again_at:
            log.warning(
                "no room for retained messages that other brokers have (%d topics, %d bytes)",
                len(self._retained),
                self._retained.nbytes,
            )
            self._again_at = now + RETAINED_AGAIN_SECONDS
        limits = self._shared.limits
        if (
            now >= self._again_at
            and self._asked is None
            and len(self._retained) < limits.retained_messages_max
            and self._retained.nbytes + lacking_bytes <= limits.retained_bytes_max
        ):
            self._retained.lacking_bytes = 0
            self._again_at = 0.0
            for stream in list(self._seen):
                self.forget_seen(stream)

    def ask(self, peers: Iterable[tuple[str, int]]) -> None:
        """Ask the first peer (name and stream) that has not sent all, unless a request is open."""
        if self._asked is not None:
            return
        for name, stream in peers:
            if not self.has_seen(stream):
                if self._request(name, 0):
                    self._asked = name
                return

    def _request(self, name: str, place: int) -> bool:
        return self._send(name, WANT, encode(RetainedRequest(place, self._stamps.digest)))

    def is_asked(self, name: str) -> bool:
        """Return whether a request to this peer is open. If not, its page is of an earlier one."""
        return name == self._asked

    def page_taken(self, name: str, stream: int, page: RetainedPage) -> None:
        """Ask for the next page, or note that this was the last."""
        if page.place and self._request(name, page.place):
            return
        self._asked = None
        if not page.place:
            self._seen.add(stream)
            self._shared.journal.save_seen(stream, True)

    def cancel(self, name: str) -> None:
        """End the request: the connection is lost. The next one begins anew."""
        if self._asked == name:
            self._asked = None

    # Theirs ---------------------------------------------------------------------------------------

    def peer_begins(self, name: str) -> None:
        """Forget a peer's position: it has a new connection, and begins anew."""
        self._snapshots.pop(name, None)

    def page(self, name: str, request: RetainedRequest, message_bytes_max: int) -> RetainedPage:
        """Return the page that a peer asks for."""
        place = request.place
        shown = self._snapshots.get(name, [])
        if not 0 < place <= len(shown):  # the beginning, or a place of an unknown request
            place = 0
            shown = []
            if request.digest != self._stamps.digest:
                shown = [
                    one
                    for one in self._retained
                    if one.size <= message_bytes_max and not one.topic.startswith(SYS_PREFIX)
                ]
                shown += self._stamps.removed()
            self._snapshots[name] = shown
        publications: list[ForwardedPublication] = []
        size = 0
        while place < len(shown):
            message = shown[place]
            size += message.size
            if size > RETAINED_PAGE_BYTES and publications:
                return RetainedPage(publications, place)
            place += 1
            publications.append(to_publication(message, self._shared.now))
        self._snapshots.pop(name, None)
        return RetainedPage(publications, 0)
