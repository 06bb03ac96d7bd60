"""What other brokers retained before we knew them: each is asked once, page by page. Pure.

    here                                            peer
      | -- WANT: from this place on, and what is  > |   0: from the beginning
      |          here already, as a digest          |
      | <- PAGE: some, and where to go on --------- |   0: that was all

Rules:

- One peer is asked at a time: mostly the first has all of them, and the others see by the digest
  that there is nothing to send. But each is asked, since one of them may have what is still on its
  way to the rest.
- A page is of the messages as they were when the walk began. What came later goes to all peers
  anyway, and of two words on a topic the later one stays (stamps.py): any order will do.
- That a peer has shown all of its messages is remembered on disk, by its stream. It is asked again
  if it says that something that it owed us was dropped.
- What found no room here is looked for again when there is some, at all peers. Until then this
  broker lacks it, and says so in its log.
- What is too large for a peer is not shown to it.
"""

import logging
from collections.abc import Callable, Iterable

from dovetail.broker.peering.limits import RETAINED_AGAIN_SECONDS, RETAINED_PAGE_BYTES
from dovetail.broker.peering.peer_messages import (
    WANT,
    Page,
    Publication,
    Want,
    encode,
    publication_of,
)
from dovetail.broker.peering.stamps import Stamps
from dovetail.broker.retained import RetainedMessages
from dovetail.broker.shared_state import Shared
from dovetail.messages import Message
from dovetail.topics.names import SYS_PREFIX

log = logging.getLogger("dovetail.cluster")


class Walk:
    """Ours through the peers' messages, and theirs through ours."""

    def __init__(
        self,
        shared: Shared,
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
        self._shown: dict[str, list[Message]] = {}
        self._lacking_bytes = 0  # the smallest that found no room; 0: none
        self._again_at = 0.0

    # Ours -----------------------------------------------------------------------------------------

    def restore(self, seen: Iterable[int]) -> None:
        self._seen.update(seen)

    def has_seen(self, stream: int) -> bool:
        return stream in self._seen

    def see_again(self, stream: int) -> None:
        if stream in self._seen:
            self._seen.discard(stream)
            self._shared.journal.save_seen(stream, None)

    def lacks_room_for(self, message: Message) -> None:
        """A message that other brokers retain is not retained here."""
        if not self._lacking_bytes:
            log.warning(
                "no room for retained messages that other brokers have (%d topics, %d bytes)",
                len(self._retained),
                self._retained.nbytes,
            )
            self._lacking_bytes = message.size
            self._again_at = self._shared.now + RETAINED_AGAIN_SECONDS
        self._lacking_bytes = min(self._lacking_bytes, message.size)

    def tick(self) -> None:
        """Is there room for what found none?"""
        limits = self._shared.limits
        if (
            self._lacking_bytes
            and self._shared.now >= self._again_at
            and self._asked is None
            and len(self._retained) < limits.retained_messages_max
            and self._retained.nbytes + self._lacking_bytes <= limits.retained_bytes_max
        ):
            self._lacking_bytes = 0
            for stream in list(self._seen):
                self.see_again(stream)

    def ask(self, peers: Iterable[tuple[str, int]]) -> None:
        """The first of these (name and stream) that has not shown all, unless one is asked now."""
        if self._asked is not None:
            return
        for name, stream in peers:
            if not self.has_seen(stream):
                if self._want(name, 0):
                    self._asked = name
                return

    def _want(self, name: str, place: int) -> bool:
        return self._send(name, WANT, encode(Want(place, self._stamps.digest)))

    def is_asked(self, name: str) -> bool:
        """Or else its page is of a walk that was broken off."""
        return name == self._asked

    def go_on(self, name: str, stream: int, page: Page) -> None:
        """A page has been taken."""
        if page.place and self._want(name, page.place):
            return
        self._asked = None
        if not page.place:
            self._seen.add(stream)
            self._shared.journal.save_seen(stream, True)

    def break_off(self, name: str) -> None:
        """There is no connection to it: the next time it is asked from the beginning."""
        if self._asked == name:
            self._asked = None

    # Theirs ---------------------------------------------------------------------------------------

    def begin(self, name: str) -> None:
        """A peer has a new connection, and walks anew if at all."""
        self._shown.pop(name, None)

    def page(self, name: str, want: Want, message_bytes_max: int) -> Page:
        place = want.place
        shown = self._shown.get(name, [])
        if not 0 < place <= len(shown):  # the beginning, or of a walk that is not known here
            place = 0
            shown = []
            if want.digest != self._stamps.digest:
                shown = [
                    one
                    for one in self._retained
                    if one.size <= message_bytes_max and not one.topic.startswith(SYS_PREFIX)
                ]
                shown += self._stamps.removed()
            self._shown[name] = shown
        publications: list[Publication] = []
        size = 0
        while place < len(shown):
            message = shown[place]
            size += message.size
            if size > RETAINED_PAGE_BYTES and publications:
                return Page(publications, place)
            place += 1
            publications.append(publication_of(message, self._shared.now))
        self._shown.pop(name, None)
        return Page(publications, 0)
