"""The cost of gossip as a cluster grows."""

import pytest

from dovetail.sim.gossip_cost import LinearFit, brokers_of, gossip_bytes


def test_more_nodes_and_more_changes_cost_more() -> None:
    quiet, busy = (gossip_bytes(10, 1, 3, is_busy=one) for one in (False, True))
    assert 500 < quiet < busy < 10_000
    assert gossip_bytes(20, 1, 3, is_busy=False) > 1.5 * quiet
    assert gossip_bytes(10, 1, 3, is_busy=False) == quiet


def test_the_fitted_line_predicts_larger_clusters() -> None:
    sizes = {matchers: gossip_bytes(matchers, 1, 3, is_busy=False) for matchers in (8, 12, 20)}
    line = LinearFit.through(sizes)
    assert line.bytes_sent(40) == pytest.approx(gossip_bytes(40, 1, 3, is_busy=False), rel=0.15)
    assert line.bytes_sent(2_000) > 50 * line.bytes_sent(40)


def test_a_tenth_are_brokers() -> None:
    assert [brokers_of(matchers) for matchers in (5, 20, 2_000)] == [2, 2, 200]
