"""A run that waits for matchers keeps what they have answered so far."""

import numpy as np

from dovetail.broker.outgoing_run import StoredRun
from dovetail.broker.pending_publication import PendingRun
from dovetail.broker.route import Route
from dovetail.codec.kernels.scan import QOS_0
from dovetail.codec.packets import MQTT_3_1_1
from dovetail.codec.run import Run

PACKET = b"\x30\x04\x00\x01ax"


def pending(packets: int) -> PendingRun:
    run = Run(PACKET * packets, MQTT_3_1_1, QOS_0, packets, 0)
    return PendingRun(Route(((), {}), ()), 0, StoredRun(run, "publisher"), None, print)


def test_all_brokers_may_match_what_nobody_was_asked_about() -> None:
    waiting = pending(2)
    assert waiting.rows_of("b").tolist() == [0, 1]
    assert waiting.matching_brokers(1) is None


def test_answers_rule_out_brokers_row_by_row() -> None:
    waiting = pending(4)
    waiting.ask(("b", "c"), np.array([0, 1, 3]))  # row 2 has no attributes
    waiting.answer(np.array([0, 3]), np.array([[True, False], [True, True]]))
    assert waiting.rows_left == 1
    assert waiting.rows_of("b").tolist() == [0, 1, 3]  # 1 is not known yet
    assert waiting.rows_of("c").tolist() == [1, 3]
    brokers = [waiting.matching_brokers(row) for row in range(4)]
    assert brokers == [{"b"}, None, frozenset(), {"b", "c"}]
