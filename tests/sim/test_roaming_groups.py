"""Group members that reconnect to another broker each time: each message goes to one, once.

A failing seed is in the test's name, and can be replayed.
"""

from collections import Counter
from collections.abc import Sequence

import pytest

from support.clusters.clients import PersistentReceiver
from support.clusters.fault_scenario import NAMES, FaultScenario


class RoamingDrama(FaultScenario):
    """Two groups, one of them with a single member. Only their connections break."""

    def make_receivers(self) -> Sequence[PersistentReceiver]:
        self.groups = {
            "several": [
                PersistentReceiver(
                    self.cluster, home, f"several-{home}-{number}", "$share/g/t/#", 2
                )
                for home in NAMES
                for number in range(2)
            ],
            "alone": [PersistentReceiver(self.cluster, "a", "alone", "$share/alone/t/+/x", 2)],
        }
        receivers = [one for members in self.groups.values() for one in members]
        for receiver in receivers:
            receiver.roams = self.random
        return receivers

    def strike(self) -> None:
        client = self.random.choice(self.receivers)
        self.story.append(f"{self.cluster.clock.now:.2f}: {client.client_id} leaves {client.home}")
        client.lose()

    def is_quiet(self) -> bool:
        nodes = self.cluster.nodes.values()
        return super().is_quiet() and not any(
            node.mesh.session_moves.ghosts
            or any(one.queue.count or one.inflight for one in node.broker.sessions.values())
            for node in nodes
        )

    def check(self) -> None:
        assert self.is_quiet(), "it does not come to rest"
        for sender in self.senders:
            for name, members in self.groups.items():
                got = Counter(number for one in members for number in one.numbers(sender.topic))
                missing = sorted(set(sender.acknowledged) - set(got))
                assert not missing, f"{sender.client_id} to {name}: lost: {missing[:10]}"
                if sender.qos == 2:
                    doubled = sorted(number for number, times in got.items() if times > 1)
                    assert not doubled, f"{sender.client_id} to {name}: doubled: {doubled[:10]}"


@pytest.mark.parametrize("seed", range(6))
def test_members_of_groups_roam(seed: int) -> None:
    drama = RoamingDrama(seed)
    drama.play(40)
    try:
        drama.check()
    except AssertionError as error:
        pytest.fail(f"seed {seed}: {error}\n" + "\n".join(drama.story))
    assert all(len(sender.acknowledged) > 10 for sender in drama.senders)
