"""Shared subscriptions in a cluster of whole brokers, with crashes and cuts.

Checked for every group and sender, over all members together:

- every acknowledged message reached at least one member, at QoS 1 and 2;
- at QoS 2 it reached one member, once.

Members keep their sessions: when a session ends, only its unsent messages go to other members. A
failing seed is in the test's name, and can be replayed.
"""

from collections import Counter
from collections.abc import Sequence

import pytest

from dovetail.codec.packets import PacketType, Subscribe, SubscriptionAck, Unsubscribe
from dovetail.codec.packets import SubscriptionRequest as Request
from support.brokers.harness import Client
from support.clusters.clients import PersistentReceiver
from support.clusters.fault_scenario import NAMES, FaultScenario


class GroupMember(PersistentReceiver):
    """A group member that may leave the group and join again. Its session stays."""

    wants_to_be = True
    _was_asked: bool | None = None

    def connected(self, *, session_present: bool) -> None:
        super().connected(session_present=session_present)
        if session_present:
            self._was_asked = None  # whatever was under way is asked again

    def take(self, packet: object) -> None:
        if not isinstance(packet, SubscriptionAck):
            super().take(packet)
        elif packet.type == PacketType.SUBACK:
            assert packet.reasons == [self.qos]
            self.ready = True

    def work(self) -> None:
        if self.ready and self._was_asked != self.wants_to_be and self.is_connected:
            self._was_asked = self.wants_to_be
            if self.wants_to_be:
                self.send(Subscribe(2, [Request(self.filter, self.qos)], 0))
            else:
                self.send(Unsubscribe(3, [self.filter]))

    @property
    def is_connected(self) -> bool:
        return isinstance(self.client, Client) and not self.client.is_closed


GROUPS = {"everywhere": "t/#", "pair": "t/+/x", "alone": "t/+/+"}


class GroupDrama(FaultScenario):
    """Groups with members at all brokers, at two and at one; and a receiver without a group."""

    comes_and_goes = False

    def make_receivers(self) -> Sequence[PersistentReceiver]:
        self.members = {
            name: [
                GroupMember(
                    self.cluster, home, f"{name}-{home}-{number}", f"$share/{name}/{shared}", 2
                )
                for home in homes
                for number in range(2)
            ]
            for (name, shared), homes in zip(
                GROUPS.items(), (NAMES, NAMES[:2], NAMES[1:2]), strict=True
            )
        }
        self.plain = [
            PersistentReceiver(self.cluster, home, f"plain-{home}", "t/#", 2) for home in NAMES
        ]
        return [*(one for members in self.members.values() for one in members), *self.plain]

    def strike(self) -> None:
        super().strike()
        if self.comes_and_goes:
            # The first member of each group stays, so that every message has a receiver.
            for members in self.members.values():
                member = self.random.choice(members[1:])
                member.wants_to_be = not member.wants_to_be
                deed = "joins" if member.wants_to_be else "leaves"
                self.story.append(f"{member.client_id} {deed}")


class RestlessDrama(GroupDrama):
    comes_and_goes = True


def check(drama: GroupDrama) -> None:
    for sender in drama.senders:
        for name, members in drama.members.items():
            got = Counter(number for one in members for number in one.numbers(sender.topic))
            who = f"{sender.client_id} to the group {name}"
            missing = sorted(set(sender.acknowledged) - set(got))
            assert not missing, f"{who}: acknowledged, and lost: {missing[:10]}"
            if sender.qos == 2:
                doubled = [number for number, times in got.items() if times > 1]
                assert not doubled, f"{who}: came more than once: {doubled[:10]}"
        for receiver in drama.plain:
            got = Counter(receiver.numbers(sender.topic))
            assert not set(sender.acknowledged) - set(got), f"{receiver.client_id} lacks some"
            assert sender.qos == 1 or set(got.values()) <= {1}, f"{receiver.client_id}: doubled"


def run(drama: GroupDrama, seed: int, strikes: int) -> GroupDrama:
    drama.play(strikes)
    try:
        assert drama.is_quiet(), "it does not come to rest"
        check(drama)
    except AssertionError as error:
        pytest.fail(f"seed {seed}: {error}\n" + "\n".join(drama.story))
    assert all(len(sender.acknowledged) > 10 for sender in drama.senders)
    return drama


@pytest.mark.parametrize("seed", range(8))
def test_each_message_goes_to_one_member_of_each_group(seed: int) -> None:
    run(GroupDrama(seed), seed, strikes=25)


@pytest.mark.parametrize("seed", range(8))
def test_each_message_goes_to_one_member_while_members_come_and_go(seed: int) -> None:
    run(RestlessDrama(seed), seed, strikes=25)


def test_all_members_get_a_share() -> None:
    drama = run(GroupDrama(0), 0, strikes=0)
    for members in drama.members.values():
        counts = [len(one.received) for one in members]
        assert min(counts) > 0.8 * max(counts), counts
