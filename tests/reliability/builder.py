"""Builds the record of a history. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from math import inf

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
    Phase,
    Publish,
    Read,
    Resent,
    Run,
    Subscribe,
    Unsubscribe,
    Whole,
)
from reliability.record import (
    MERGE_SECONDS,
    Client,
    Connection,
    Disturbance,
    Publication,
    Reading,
    Record,
    Subscription,
)

SUBACK_SECONDS = 0.2
"""How long a broker delays SUBACK for others that do not answer (docs/cluster.md). A faster SUBACK
means that all have answered."""

HTTP_ERRORS = 400
"""Higher reasons are HTTP statuses: the client is a handle."""


def build(events: Iterable[Event]) -> Record:
    """Return the record of a history."""
    builder = _Builder()
    for event in events:
        builder.take(event)
    return builder.finish()


class _Builder:
    def __init__(self) -> None:
        self.record = Record()
        self._invoked: dict[int, Invoked] = {}
        self._by_operation: dict[int, Publication] = {}
        self._connections: dict[int, Connection] = {}
        self._current: dict[str, Connection] = {}
        """By client: the connection that it last had or tried."""
        self._tried_since: dict[str, float] = {}
        self._tried_nodes: dict[str, tuple[str, ...]] = {}
        self._open: dict[str, dict[str, Subscription]] = defaultdict(dict)
        """By client and filter: subscriptions without an UNSUBSCRIBE."""
        self._faults: dict[int, Disturbance] = {}
        self._wills: dict[int, Publication] = {}

    def take(self, event: Event) -> None:
        record = self.record
        record.until = max(record.until, event.at)
        match event:
            case Invoked():
                self._invoke(event)
            case Completed():
                self._complete(event)
            case Resent():
                publication = self._by_operation[event.number]
                publication.nodes += (event.node,)
                publication.sent_at += (event.at,)
            case Delivered():
                self._client(event.client).deliveries.append(event)
            case Ended():
                self._end(event)
            case _:
                self._take_of_cluster(event)

    def _take_of_cluster(self, event: Event) -> None:
        record = self.record
        match event:
            case FaultBegan():
                fault = Disturbance(event.number, event.fault, event.nodes, event.detail, event.at)
                self._faults[event.number] = fault
                record.disturbances.append(fault)
            case FaultEnded():
                self._faults[event.number].ended_at = event.at
            case Whole():
                record.whole.append(event.at)
            case Exited():
                record.exits.append(event)
            case Phase():
                record.phases.append(event)
            case Run():
                record.run = event

    def _client(self, name: str) -> Client:
        client = self.record.clients.get(name)
        if client is None:
            client = self.record.clients[name] = Client(name)
        return client

    def _invoke(self, event: Invoked) -> None:
        self.record.operations += 1
        self._invoked[event.number] = event
        client = self._client(event.client)
        match event.action:
            case Publish() as publish:
                self._publish(event, publish)
            case Connect() as connect:
                self._connect(client, event, connect)
            case Disconnect(with_will=with_will):
                connection = self._current[event.client]
                connection.disconnect_at = event.at
                connection.disconnect_with_will = with_will
            case Subscribe() as subscribe:
                self._subscribe(client, event, subscribe)
            case Unsubscribe() as unsubscribe:
                subscription = self._open[event.client].get(unsubscribe.filter)
                if subscription is not None:
                    subscription.guaranteed_until = min(subscription.guaranteed_until, event.at)

    def _publish(self, event: Invoked, action: Publish) -> None:
        publisher, _, number = action.message.rpartition(":")
        publication = Publication(
            action.message,
            publisher,
            int(number),
            action.topic,
            action.qos,
            event.node,
            event.at,
            action.retain,
            action.clears,
            action.attributes,
            nodes=(event.node,),
            sent_at=(event.at,),
        )
        self._by_operation[event.number] = publication
        self.record.publications[action.message] = publication

    def _connect(self, client: Client, event: Invoked, action: Connect) -> None:
        since = self._tried_since.setdefault(event.client, event.at)
        nodes = self._tried_nodes[event.client] = (
            *self._tried_nodes.get(event.client, ()),
            event.node,
        )
        connection = Connection(
            event.number,
            event.client,
            event.node,
            event.at,
            since,
            nodes,
            action.clean_start,
            action.expiry_seconds,
            action.will,
        )
        client.connections.append(connection)
        self._connections[event.number] = connection
        self._current[event.client] = connection
        if action.clean_start:
            for subscription in self._open[event.client].values():
                subscription.guaranteed_until = min(subscription.guaranteed_until, event.at)
        if action.will:
            publisher, _, number = action.will.rpartition(":")
            will = Publication(
                action.will,
                publisher,
                int(number),
                action.will_topic,
                action.will_qos,
                event.node,
                event.at,
                is_will=True,
                nodes=(event.node,),
                sent_at=(event.at,),
            )
            self.record.wills[action.will] = (will, connection)

    def _subscribe(self, client: Client, event: Invoked, action: Subscribe) -> None:
        if action.filter not in self._open[event.client]:
            subscription = Subscription(
                event.client,
                event.node,
                action.filter,
                action.qos,
                event.at,
                action.no_local,
                action.group,
                action.where,
                action.is_handle,
            )
            self._open[event.client][action.filter] = subscription
            client.subscriptions.append(subscription)

    def _complete(self, event: Completed) -> None:
        invoked = self._invoked[event.number]
        client = invoked.client
        match invoked.action:
            case Publish():
                publication = self._by_operation[event.number]
                publication.outcome = event.outcome
                publication.reason = event.reason
                publication.completed_at = event.at
            case Connect():
                self._connected(self._connections[event.number], event)
            case Disconnect():
                self._current[client].disconnect_outcome = event.outcome
            case Read(topic=topic):
                reading = Reading(topic, invoked.node, event.at, event.message, event.outcome)
                self.record.readings.append(reading)
            case action if event.outcome == "ok":
                self._granted(client, action, event.at)

    def _granted(self, client: str, action: Action, at: float) -> None:
        match action:
            case Subscribe():
                granted = self._open[client].get(action.filter)
                if granted is not None:
                    granted.granted_at = min(granted.granted_at, at)
            case Unsubscribe():
                left = self._open[client].pop(action.filter, None)
                if left is not None:
                    left.left_at = at
            case Acknowledge():
                self.record.acknowledgements.append((client, at, action.messages))

    def _connected(self, connection: Connection, event: Completed) -> None:
        connection.outcome = event.outcome
        connection.reason = event.reason
        if event.reason >= HTTP_ERRORS:
            self.record.refusals.append((connection.client, event.at, event.reason))
        if event.outcome != "ok":
            return
        connection.connected_at = event.at
        connection.session_present = event.session_present
        self._tried_since.pop(connection.client, None)
        self._tried_nodes.pop(connection.client, None)
        open_now = self._open[connection.client]
        if connection.clean_start:
            for subscription in open_now.values():
                subscription.left_at = event.at
            open_now.clear()
        elif not event.session_present:
            # Its subscriptions are promised nothing after the first CONNECT that may have begun
            # this session. Messages of the other session may still come.
            for subscription in open_now.values():
                subscription.guaranteed_until = min(
                    subscription.guaranteed_until, connection.tried_since
                )
            open_now.clear()

    def _end(self, event: Ended) -> None:
        connection = self._connections.get(event.connection)
        if connection is not None:
            connection.ended_at = event.at
            connection.lost = event.lost

    def finish(self) -> Record:
        record = self.record
        record.disturbances.sort(key=lambda one: one.began_at)
        for fault in record.disturbances:
            fault.over_at = record.whole_after(fault.ended_at)
        for client in record.clients.values():
            self._find_splits(client)
            for subscription in client.subscriptions:
                self._establish(subscription)
        return record

    def _establish(self, subscription: Subscription) -> None:
        granted = subscription.granted_at
        if granted == inf:
            return
        asked = subscription.asked_at
        is_prompt = granted - asked < SUBACK_SECONDS
        is_calm = not any(self.record.disturbed(asked, granted, harmless=False))
        subscription.established_at = (
            granted if is_prompt and is_calm else self.record.whole_after(granted)
        )

    def _find_splits(self, client: Client) -> None:
        last: Connection | None = None
        for connection in client.connections:
            if not connection.is_up:
                continue
            if last is not None and not connection.clean_start and last.expiry_seconds:
                moved = {last.node, *connection.tried_nodes}
                is_cut = len(moved) > 1 and any(
                    self.record.disturbed(
                        connection.tried_since, connection.connected_at, *moved, harmless=False
                    )
                )
                if is_cut or not connection.session_present:
                    until = self.record.whole_after(connection.connected_at) + MERGE_SECONDS
                    client.splits.append((connection.tried_since, until))
            last = connection
