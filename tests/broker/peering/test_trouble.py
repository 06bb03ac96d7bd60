"""Brokers as processes, killed, stopped, cut off and restarted while messages flow.

`scripts/soak` goes on with it for as long as it is told, from another seed every time.
"""

from collections.abc import Iterator
from functools import partial

import pytest

from broker_process import wait_until
from cluster_brokers import ClusterBrokers
from cluster_network import ClusterNetwork, Cut
from cluster_trouble import NAMES, open_cluster, trouble

Cluster = tuple[ClusterBrokers, ClusterNetwork]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with open_cluster(tmp_path_factory.mktemp("trouble")) as opened:
        yield opened


def test_killed_and_stopped(cluster: Cluster) -> None:
    with trouble(*cluster, seed=1) as made:
        for _ in range(2):
            killed, stopped = made.random.sample(NAMES, 2)
            made.kill(killed)
            made.lose()
            made.start(killed)
            made.suspend(stopped)
            made.lose()
            made.resume(stopped)
            made.flow()


def _has_lost(brokers: ClusterBrokers, name: str, peer: str, times: int) -> bool:
    return brokers.log(name).count(f"lost {peer} at") > times


@pytest.mark.parametrize("how", [Cut.STALLED, Cut.ONE_WAY, Cut.RESET])
def test_cut_off(cluster: Cluster, how: Cut) -> None:
    """Nobody's publications wait for the other side for longer than a connection is kept."""
    with trouble(*cluster, seed=2 + list(Cut).index(how)) as made:
        name, *others = made.random.sample(NAMES, 3)
        logs = {other: cluster[0].log(other).count(f"lost {name} at") for other in others}
        made.cut_off(name, how)
        made.flow()
        for other, times in logs.items():  # it was cut indeed
            wait_until(partial(_has_lost, cluster[0], other, name, times), f"{other} loses {name}")


def test_a_slow_network(cluster: Cluster) -> None:
    with trouble(*cluster, seed=8) as made:
        made.cut_off(made.random.choice(NAMES), Cut.SLOW)
        made.flow()


@pytest.mark.parametrize("seed", [7])
def test_one_thing_on_top_of_another(cluster: Cluster, seed: int) -> None:
    with trouble(*cluster, seed=seed) as made:
        for _ in range(8):
            made.strike()


def test_a_broker_that_hangs_is_not_waited_for(cluster: Cluster) -> None:
    with trouble(*cluster, seed=5) as made:
        stopped, *others = made.random.sample(NAMES, 3)
        made.suspend(stopped)
        made.flow(*others)


def test_clients_that_roam(cluster: Cluster) -> None:
    """Their sessions follow them, with what they are owed and what is under way."""
    with trouble(*cluster, seed=9) as made:
        made.let_roam()
        for _ in range(12):
            made.lose()
            made.lose()
            made.flow()


def test_rolling_restart(cluster: Cluster) -> None:
    with trouble(*cluster, seed=6) as made:
        for name in NAMES:
            made.terminate(name)
            made.flow(*(other for other in NAMES if other != name))
            made.start(name)
            made.flow()
