"""What a store must hold: plain dicts that take the same batches. And batches by their number."""

from collections.abc import Callable
from typing import Any

from dovetail.broker.journal import Batch, DeliveryRow, MessageRow, SessionRow, StoredState

KEPT = 20


def session(name: str = "client") -> SessionRow:
    return SessionRow(name, 60, None, None, None)


def message(payload: bytes = b"21.5") -> MessageRow:
    return MessageRow(b"plant/line/sensor", payload, 1, False, b"", None, "publisher")


def delivery(number: int) -> DeliveryRow:
    return DeliveryRow(number, 1, False, 0, False, ())


class Model:
    """The oracle: what the tables must hold."""

    def __init__(self) -> None:
        self.state = StoredState(*({} for _ in StoredState._fields))

    def commit(self, batch: Batch) -> None:
        for name in StoredState._fields:
            rows = getattr(self.state, name)
            for key, row in getattr(batch, name).items():
                if row is None:
                    rows.pop(key, None)
                else:
                    rows[key] = row
        gone = {number for number, row in batch.sessions.items() if row is None}
        for name in ("subscriptions", "deliveries", "incoming"):
            self.keep(name, lambda key, _: key[0] not in gone)

    def load(self) -> StoredState:
        sessions, messages = self.state.sessions, self.state.messages
        self.keep("subscriptions", lambda key, _: key[0] in sessions)
        self.keep("incoming", lambda key, _: key[0] in sessions)
        self.keep("deliveries", lambda key, row: key[0] in sessions and row.message in messages)
        self.keep("retained", lambda _, row: row in messages)
        needed = {row.message for row in self.state.deliveries.values()}
        self.keep("owed", lambda _, row: row.message in messages)
        needed |= set(self.state.retained.values())
        needed |= {row.message for row in self.state.owed.values()}
        self.keep("messages", lambda key, _: key in needed)
        return self.state

    def keep(self, name: str, wanted: Callable[[Any, Any], bool]) -> None:
        rows = getattr(self.state, name)
        for key in [key for key, row in rows.items() if not wanted(key, row)]:
            del rows[key]


def numbered(number: int) -> Batch:
    """After batch n, messages n - KEPT + 1 to n are there, each owed to two sessions."""
    batch = Batch(number)
    batch.sessions = {1: session(f"{number}"), 2: session(f"{number}")}
    batch.messages[number] = message(b"%d" % number * 1_000)
    batch.retained[b"last"] = number
    for receiver in (1, 2):
        batch.deliveries[receiver, number] = delivery(number)
        batch.incoming[receiver, number % 7 + 1] = True
        batch.incoming[receiver, (number - 3) % 7 + 1] = None
    if number > KEPT:
        batch.messages[number - KEPT] = None
        batch.deliveries[1, number - KEPT] = batch.deliveries[2, number - KEPT] = None
    return batch


def state_after(number: int) -> StoredState:
    model = Model()
    for earlier in range(1, number + 1):
        model.commit(numbered(earlier))
    return model.load()


def last_batch(state: StoredState) -> int:
    return int(state.sessions[1].client_id)
