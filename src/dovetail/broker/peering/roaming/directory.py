"""The directory: which brokers may have a client's session, even while they are down. Pure.

- Each broker puts a trace into its sketch for every client whose session outlives its connection.
  A trace is like a filter, but one to which no client can subscribe.
- A sketch has no false negatives. A false positive costs a needless question.
"""

import hashlib
from collections.abc import Iterable, Iterator

from dovetail.broker.peering.sketch_exchange import SketchExchange

_COMPARED_AT_ONCE = 2_000


class SessionDirectory:
    """The traces of one broker's clients."""

    def __init__(self, exchange: SketchExchange) -> None:
        self._exchange = exchange
        self._clients: dict[str, None] = {}

    def set_trace(self, client_id: str, is_kept: bool) -> None:
        """Set or remove the client's trace in our sketch."""
        if is_kept != (client_id in self._clients):
            if is_kept:
                self._clients[client_id] = None
            else:
                del self._clients[client_id]
            self._exchange.filter_changed(_trace(client_id), is_kept)

    def possible_holders(self, client_id: str) -> tuple[str, ...]:
        """Return peers that may have a session of the client, or whose sketch we do not know."""
        return self._exchange.search([_trace(client_id).encode()])[0]

    def with_known_sketch(self, names: Iterable[str]) -> Iterator[str]:
        """Return those of these peers whose sketch we have."""
        return (name for name in names if name in self._exchange.bank)

    def shared_clients(self, name: str) -> Iterator[list[str]]:
        """Return our clients of which this peer may have a session, too; some at a time."""
        clients = list(self._clients)
        for at in range(0, len(clients), _COMPARED_AT_ONCE):
            some = clients[at : at + _COMPARED_AT_ONCE]
            found = self._exchange.search([_trace(client_id).encode() for client_id in some])
            yield [client_id for client_id, names in zip(some, found, strict=True) if name in names]


def _trace(client_id: str) -> str:
    digest = hashlib.blake2b(client_id.encode(), digest_size=12).hexdigest()
    return f"$dovetail\0/{digest}"
