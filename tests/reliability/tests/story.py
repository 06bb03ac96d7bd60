"""Histories written by hand, for tests of checkers: a call for each event."""

from reliability.checker import check
from reliability.history import (
    Acknowledge,
    Action,
    Completed,
    Connect,
    Delivered,
    Disconnect,
    Ended,
    Event,
    Exited,
    FaultBegan,
    FaultEnded,
    Invoked,
    Outcome,
    Phase,
    Publish,
    Read,
    Resent,
    Subscribe,
    Unsubscribe,
    Whole,
)
from reliability.verdict import Verdict

NODES = ("one", "two", "three")


class Story:
    """Each step takes a second, and an operation completes half a second after it was invoked."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now = 0.0
        self._number = 0
        self._connections: dict[str, tuple[int, str]] = {}
        self._messages: dict[str, Publish] = {}
        self._operations: dict[str, int] = {}
        self._granted: dict[str, int] = {}

    def verdict(self, promise: str) -> Verdict:
        (verdict,) = (one for one in check(self.events) if one.promise.name == promise)
        return verdict

    def broken(self) -> list[str]:
        """Return the broken promises, one for each violation."""
        return [one.promise.name for one in check(self.events) for _ in range(one.violated)]

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def put(self, event: Event) -> None:
        self.events.append(event)

    def operate(
        self, client: str, node: str, action: Action, outcome: Outcome | None, **results: object
    ) -> int:
        self.now += 0.5
        self._number += 1
        self.put(Invoked(self.now, self._number, client, node, action))
        self.now += 0.5
        if outcome is not None:
            self.put(Completed(self.now, self._number, outcome, **results))  # type: ignore[arg-type]
        return self._number

    def node_of(self, client: str) -> str:
        return self._connections[client][1]

    # Clients --------------------------------------------------------------------------------------

    def connect(
        self,
        client: str,
        node: str = "one",
        *,
        present: bool = False,
        outcome: Outcome | None = "ok",
        reason: int = 0,
        **fields: object,
    ) -> None:
        fields = {"expiry_seconds": 3_600, **fields}
        number = self.operate(
            client,
            node,
            Connect(**fields),  # type: ignore[arg-type]
            outcome,
            session_present=present,
            reason=reason,
        )
        self._connections[client] = (number, node)

    def lose(self, client: str) -> None:
        self.now += 0.1
        self.put(Ended(self.now, client, self._connections[client][0]))

    def leave(self, client: str, outcome: Outcome = "ok", **fields: object) -> None:
        disconnect = Disconnect(**fields)  # type: ignore[arg-type]
        self.operate(client, self.node_of(client), disconnect, outcome)
        self.put(Ended(self.now, client, self._connections[client][0], lost=False))

    def subscribe(self, client: str, topic_filter: str, qos: int = 2, **fields: object) -> None:
        subscribe = Subscribe(topic_filter, qos, **fields)  # type: ignore[arg-type]
        number = self.operate(client, self.node_of(client), subscribe, None)
        self.put(Completed(self.now - 0.4, number, "ok"))
        self._granted[client] = qos

    def granted(self, client: str) -> int:
        """Return the QoS of its last subscription."""
        return self._granted[client]

    def unsubscribe(self, client: str, topic_filter: str) -> None:
        self.operate(client, self.node_of(client), Unsubscribe(topic_filter), "ok")

    def subscriber(
        self, client: str, topic_filter: str, qos: int = 2, node: str = "one", **fields: object
    ) -> None:
        self.connect(client, node)
        self.subscribe(client, topic_filter, qos, **fields)

    def publish(
        self,
        message: str,
        topic: str = "t",
        qos: int = 2,
        *,
        to: tuple[str, ...] = (),
        node: str = "one",
        outcome: Outcome | None = "ok",
        reason: int = 0,
        **fields: object,
    ) -> None:
        """Publish, and deliver to these clients."""
        publish = Publish(message, topic, qos, **fields)  # type: ignore[arg-type]
        self._messages[message] = publish
        publisher = message.rpartition(":")[0]
        number = self.operate(publisher, node, publish, outcome, reason=reason)
        self._operations[message] = number
        for client in to:
            self.deliver(client, message)

    def resend(self, message: str, node: str) -> None:
        self.put(Resent(self.now, self._operations[message], node))

    def complete(self, message: str) -> None:
        """Let a broker acknowledge a publication that was left without an outcome."""
        self.put(Completed(self.now, self._operations[message], "ok"))

    def deliver(self, client: str, message: str, **fields: object) -> None:
        self.now += 0.01
        number, node = self._connections.get(client, (0, "one"))
        publish = self._messages.get(message, Publish(message, "t"))
        fields = {"topic": publish.topic, "qos": publish.qos, **fields}
        self.put(
            Delivered(self.now, client, node, number, message, **fields)  # type: ignore[arg-type]
        )

    def read(self, topic: str, values: dict[str, str]) -> None:
        for node, value in values.items():
            self.operate("reader", node, Read(topic), "ok", message=value)

    def acknowledge(self, client: str, *messages: str) -> None:
        self.operate(client, "one", Acknowledge(messages), "ok")

    # Brokers --------------------------------------------------------------------------------------

    def fault(self, kind: str, *nodes: str) -> int:
        self.now += 0.1
        self._number += 1
        self.put(FaultBegan(self.now, self._number, kind, nodes))
        return self._number

    def heal(self, number: int, *, whole: bool = True) -> None:
        self.now += 0.1
        self.put(FaultEnded(self.now, number))
        if whole:
            self.whole()

    def whole(self) -> None:
        self.now += 1
        self.put(Whole(self.now))

    def exit(self, node: str, code: int) -> None:
        self.put(Exited(self.now, node, code))

    def over(self) -> None:
        self.put(Phase(self.now, "over"))
