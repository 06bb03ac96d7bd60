"""Shared subscriptions over whole brokers, under crashes and cuts: one member of each group.

What is checked of every group, for each sender, over all of its members together:

- what was acknowledged has come to at least one member, at QoS 1 and 2;
- at QoS 2 it has come to one, once.

Members keep their sessions: what waits in a session that ends goes elsewhere only if it has not
been sent. A failing seed is in the test's name, and replays.
"""

from collections import Counter
from collections.abc import Sequence

import pytest

from dovetail.codec.packets import PacketType, Reasons, Subscribe, Unsubscribe
from dovetail.codec.packets import SubscriptionRequest as Request
from support.brokers.harness import Client
from support.clusters.clients import Receiver
from support.clusters.drama import NAMES, Drama


class Member(Receiver):
    """Of a group that it may leave and join again; its session stays."""

    wants_to_be = True
    _was_asked: bool | None = None

    def connected(self, *, session_present: bool) -> None:
        super().connected(session_present=session_present)
        if session_present:
            self._was_asked = None  # whatever was under way is asked again

    def take(self, packet: object) -> None:
        if not isinstance(packet, Reasons):
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


class GroupDrama(Drama):
    """One group with members at all brokers, one at two, one at a single one; one without group."""

    comes_and_goes = False

    def make_receivers(self) -> Sequence[Receiver]:
        self.members = {
            name: [
                Member(self.cluster, home, f"{name}-{home}-{number}", f"$share/{name}/{shared}", 2)
                for home in homes
                for number in range(2)
            ]
            for (name, shared), homes in zip(
                GROUPS.items(), (NAMES, NAMES[:2], NAMES[1:2]), strict=True
            )
        }
        self.plain = [Receiver(self.cluster, home, f"plain-{home}", "t/#", 2) for home in NAMES]
        return [*(one for members in self.members.values() for one in members), *self.plain]

    def strike(self) -> None:
        super().strike()
        if self.comes_and_goes:
            # The first of each group stays: somebody is there for every message.
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
def test_also_while_members_come_and_go(seed: int) -> None:
    run(RestlessDrama(seed), seed, strikes=25)


def test_all_members_get_their_part() -> None:
    drama = run(GroupDrama(0), 0, strikes=0)
    for members in drama.members.values():
        counts = [len(one.received) for one in members]
        assert min(counts) > 0.8 * max(counts), counts
