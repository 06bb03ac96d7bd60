"""Seeds decide which faults come and what clients do."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from reliability import schedule, workload
from reliability.schedule import DISK, KINDS, NETWORK, PlannedFault

NODES = ("one", "two", "three")
seeds = st.integers(0, 1 << 31)


@given(seeds)
def test_a_seed_decides_everything(seed: int) -> None:
    assert schedule.plan(seed, 60, NODES) == schedule.plan(seed, 60, NODES)
    assert workload.plan(seed, NODES) == workload.plan(seed, NODES)
    assert schedule.plan(seed, 60, NODES) != schedule.plan(seed + 1, 60, NODES)


@given(seeds, st.floats(5, 300))
def test_faults_end_with_the_workload(seed: int, seconds: float) -> None:
    for fault in schedule.plan(seed, seconds, NODES):
        assert 0 < fault.at < seconds
        assert fault.at + fault.seconds <= seconds + 0.01


@given(seeds)
def test_every_kind_comes_soon(seed: int) -> None:
    kinds = Counter(fault.kind for fault in schedule.plan(seed, 300, NODES))
    assert kinds.keys() == {*KINDS}


@given(seeds, st.sets(st.sampled_from(KINDS)))
def test_only_the_kinds_that_are_asked_for_come(seed: int, kinds: set[str]) -> None:
    planned = schedule.plan(seed, 60, NODES, sorted(kinds))
    assert {fault.kind for fault in planned} <= kinds


@given(seeds)
def test_one_layer_of_a_node_has_one_fault_at_a_time(seed: int) -> None:
    by_layer: dict[str, list[PlannedFault]] = {}
    for fault in schedule.plan(seed, 300, NODES):
        assert len(set(fault.nodes)) == len(fault.nodes) >= 1
        if fault.kind in NETWORK:
            layers = ["network"]
        else:
            layer = "disk" if fault.kind in DISK else "process"
            layers = [f"{layer} {node}" for node in fault.nodes]
        for layer in layers:
            by_layer.setdefault(layer, []).append(fault)
    for faults in by_layer.values():
        for earlier, later in pairwise(faults):
            assert earlier.at + earlier.seconds <= later.at + 0.01


@given(seeds)
def test_there_are_calm_times(seed: int) -> None:
    planned = schedule.plan(seed, 300, NODES)
    begin = schedule.FIRST_SECONDS + schedule.SPELL_SECONDS
    calm = (begin + 0.01, begin + schedule.CALM_SECONDS - 0.01)
    assert not any(one.at < calm[1] and calm[0] < one.at + one.seconds for one in planned)


@given(seeds)
def test_clients_have_names_of_their_own(seed: int) -> None:
    clients = workload.plan(seed, NODES).clients
    assert len({client.name for client in clients}) == len(clients)
    homes = Counter(client.home for client in clients)
    assert homes.keys() == {*NODES}


def test_the_workload_has_every_kind_of_client() -> None:
    clients = workload.plan(1, NODES).clients
    publisher_plan = [
        client.publisher_plan for client in clients if client.publisher_plan is not None
    ]
    subscriber_plan = [
        client.subscriber_plan for client in clients if client.subscriber_plan is not None
    ]
    assert {one.qos for one in publisher_plan} == {one.qos for one in subscriber_plan} == {0, 1, 2}
    assert {client.version for client in clients} == {workload.MQTT_3, workload.MQTT_5}
    assert any(one.retain for one in publisher_plan)
    assert any(one.has_attributes for one in publisher_plan)
    assert any(one.where is not None for one in subscriber_plan)
    assert any(one.no_local for one in subscriber_plan)
    assert {one.group for one in subscriber_plan} == {"", "workers-1", "workers-2"}
    for kind in ("roams", "is_transient", "is_short_lived", "is_handle"):
        assert any(getattr(client, kind) for client in clients)
