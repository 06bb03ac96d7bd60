"""Restores sessions, queues and retained messages from the rows of an earlier process. Pure.

Sessions come back as if every connection had just been lost. Wills and expiry count from the time
when the client was last connected. Order matters: messages come before their references, sessions
before their subscriptions and deliveries, and wills and expiry last.

A broker that has left a cluster may have rows that only a cluster can use: redirected sessions, and
messages spooled for peers. It restores no session from them, because their clients may have newer
ones. The rows and their messages stay, so that nothing is lost when the broker joins again. Then a
redirected session is removed as usual, after a day at the latest.
"""

import logging
from collections.abc import Callable, Iterable

from dovetail.broker.outgoing_message import OutgoingMessage
from dovetail.broker.outgoing_run import OutgoingRun, StoredRun
from dovetail.broker.peering.mesh import Mesh
from dovetail.broker.peering.roaming.redirect import has_moved_on
from dovetail.broker.retained import RetainedMessages
from dovetail.broker.router import Router
from dovetail.broker.session import Session, stamp_from_row
from dovetail.broker.session_lifetime import SessionLifetimes
from dovetail.broker.shared_state import SharedState
from dovetail.broker.store.journal import MessageRow, OwedRow, SessionRow, StoredState
from dovetail.messages import Message

log = logging.getLogger("dovetail.broker")


def restore(
    state: StoredState,
    shared: SharedState,
    router: Router,
    lifetimes: SessionLifetimes,
    retained: RetainedMessages,
    expire_retained: Callable[[Message], None],
    review: Callable[[Iterable[Session]], None],
    mesh: Mesh | None = None,
) -> None:
    """Restore the state of an earlier process into an empty broker.

    `expire_retained` sets the timers of retained messages. `review` removes from sessions what the
    access rules now forbid.
    """
    messages = {number: _message(number, row) for number, row in state.messages.items()}
    runs = {number: StoredRun.restored(number, row) for number, row in state.runs.items()}
    for owed in state.owed.values():  # their rows stay on disk, with or without a cluster
        _owed(owed, messages, runs).references += 1
    if mesh is None:
        state = _without_redirects(state, messages, runs)
    sessions = {number: _session(shared, number, row) for number, row in state.sessions.items()}
    here = {
        number: session
        for number, session in sessions.items()
        if mesh is None or not mesh.session_moves.restore(session, state.sessions[number].detour)
    }
    lifetimes.sessions.update((session.client_id, session) for session in here.values())
    for (number, topic_filter), row in state.subscriptions.items():
        router.subscribe(sessions[number], topic_filter, row.options, row.identifier)
    router.settle()
    _restore_pending(state, sessions, messages, runs)
    for number, packet_id in state.incoming:
        sessions[number].incoming.add(packet_id)
    for message in [messages[number] for number, one in state.messages.items() if one.retained]:
        message.references += 1
        retained.put(message)
        if message.expires_at is not None:
            expire_retained(message)
    if mesh is not None:
        heard = {stream: last for stream, last in state.heard.items() if stream >= 0}
        mesh.restore(state.members, heard, state.seen, state.removals)
        mesh.group_exchange.restore(state.peer_groups)
        for (peer, sequence), owed in sorted(state.owed.items()):
            mesh.outbox(peer).restore(sequence, _owed(owed, messages, runs), owed.mark)
        mesh.session_moves.restored()
    review(sessions.values())
    for session in here.values():
        lifetimes.restore(session)


def _restore_pending(
    state: StoredState,
    sessions: dict[int, Session],
    messages: dict[int, Message],
    runs: dict[int, StoredRun],
) -> None:
    """Restore queues and messages in flight, each session's in the order of their sequences."""
    for key in sorted((*state.deliveries, *state.run_deliveries)):
        number, sequence = key
        if key in state.run_deliveries:
            row = state.run_deliveries[key]
            run = OutgoingRun.restored(runs[row.run], sequence, row)
            sessions[number].restore_run(run)
            continue
        delivery = state.deliveries[key]
        entry = OutgoingMessage(
            messages[delivery.message],
            delivery.qos,
            delivery.retain,
            delivery.identifiers,
            sequence,
        )
        entry.packet_id = delivery.packet_id
        entry.released = delivery.released
        entry.first_batch = -1
        sessions[number].restore(entry)
    for session in sessions.values():
        session.take_apart()


def _owed(
    row: OwedRow, messages: dict[int, Message], runs: dict[int, StoredRun]
) -> Message | StoredRun:
    """Return what is spooled. Runs and messages share their numbers."""
    return messages[row.message] if row.message in messages else runs[row.message]


def _without_redirects(
    state: StoredState, messages: dict[int, Message], runs: dict[int, StoredRun]
) -> StoredState:
    """Return the state without redirected sessions (roaming/redirect.py).

    Their rows stay on disk, so the messages that they refer to count these references.
    """
    ghosts = {number for number, row in state.sessions.items() if has_moved_on(row.detour)}
    if not ghosts:
        return state
    log.warning(
        "sessions that have moved on to other brokers, and are left alone while this broker is in "
        "no cluster: %s",
        f"{len(ghosts):,}",
    )
    for (number, _), delivery in state.deliveries.items():
        if number in ghosts:
            messages[delivery.message].references += 1
    for (number, _), run_delivery in state.run_deliveries.items():
        if number in ghosts:
            runs[run_delivery.run].references += 1
    return state._replace(
        sessions={key: row for key, row in state.sessions.items() if key not in ghosts},
        subscriptions={
            key: row for key, row in state.subscriptions.items() if key[0] not in ghosts
        },
        deliveries={key: row for key, row in state.deliveries.items() if key[0] not in ghosts},
        run_deliveries={
            key: row for key, row in state.run_deliveries.items() if key[0] not in ghosts
        },
        incoming={key: row for key, row in state.incoming.items() if key[0] not in ghosts},
    )


def _message(number: int, row: MessageRow) -> Message:
    message = Message(*row[:-1])  # all but `retained`
    message.number = number
    return message


def _session(shared: SharedState, number: int, row: SessionRow) -> Session:
    session = Session(shared, number, row.client_id)
    session.user = row.user
    session.expiry_seconds = row.expiry_seconds
    session.ended_at = row.ended_at
    session.will = None if row.will is None else shared.decode_will(row.will)
    session.stamp, session.is_loss_unconfirmed = stamp_from_row(row.stamp)
    session.void_before = row.void_before
    session.stored = True
    session.was_persistent = session.persistent
    return session
