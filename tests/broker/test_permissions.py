"""Every delivery was allowed, with random rules, subscriptions and publications.

Rules change while clients are there, while they are away, and while the broker is down.
"""

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.attributes.space import Dimension, Space
from dovetail.broker import core, outgoing_queue, subscribe
from dovetail.broker.auth.access import AccessRules
from dovetail.broker.mailbox import Handle
from dovetail.codec.packets import Connack, Packet, Publish, Will
from dovetail.errors import ReasonCode
from dovetail.settings import AccessRule
from dovetail.topics.names import matches
from support.brokers import mailboxes
from support.brokers.harness import PERSISTENT, Client, World, attributes
from support.oracles.access import FILTERS, TOPICS, draw_rules, is_allowed

SPACE = Space("space", "a/#", (Dimension("x", 0, 10),))
USERS = ("ann", "bob")


class Publication:
    """A publication: whose, where, and the rules that there were."""

    def __init__(self, user: str, topic: str, rules: tuple[AccessRule, ...]) -> None:
        self.user = user
        self.topic = topic
        self.rules = rules


class UserClient:
    """A client with a user name; it may be away."""

    def __init__(self, user: str, client_id: str, *, is_persistent: bool) -> None:
        self.user = user
        self.client_id = client_id
        self.fields: dict[str, object] = dict(PERSISTENT) if is_persistent else {}
        self.client: Client | None = None
        self.will: Publication | None = None


class RandomRun:
    """People of two users, their handles, and what they say."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.rules = draw_rules(random, USERS)
        self.world = World(rules=self.rules, spaces=(SPACE,))
        self.published: list[Publication] = []
        """By payload."""
        self.people = [
            UserClient(user, f"{user}-{is_persistent}", is_persistent=is_persistent)
            for user in USERS
            for is_persistent in (False, True)
        ]
        self.handles: list[tuple[Handle, str]] = []
        for person in self.people:
            self.come(person)

    def flip(self, chance: float = 0.5) -> bool:
        return self.random.random() < chance

    def say(self, user: str, topic: str) -> bytes:
        self.published.append(Publication(user, topic, self.rules))
        return b"%d" % (len(self.published) - 1)

    def present(self) -> list[tuple[UserClient, Client]]:
        return [(one, one.client) for one in self.people if one.client is not None]

    # What happens ---------------------------------------------------------------------------------

    def come_or_go(self) -> None:
        person = self.random.choice(self.people)
        if person.client is None:
            self.come(person)
            return
        if person.will is not None:
            person.will.rules = self.rules  # it is published now
        person.client.lose()
        person.client = person.will = None
        self.look()

    def come(self, person: UserClient) -> None:
        will = None
        if self.flip():
            topic = self.random.choice(TOPICS)
            will = Will(topic.encode(), self.say(person.user, topic), retain=self.flip())
            person.will = self.published[-1]
        client = Client(self.world, person.client_id, user=person.user, will=will, **person.fields)
        reason = client.connect().reason
        if reason:
            assert reason == ReasonCode.NOT_AUTHORIZED
            assert person.will is not None
            assert not is_allowed(self.rules, person.user, "publish", person.will.topic)
            person.will = None
            return
        person.client = client
        self.check(client.early, person.user)

    def subscribe(self) -> None:
        present = self.present()
        if not present:
            return
        person, client = self.random.choice(present)
        topic_filter = self.random.choice(FILTERS)
        where = "x < 5" if topic_filter.startswith("a/") and self.flip() else None
        name = f"$share/group/{topic_filter}" if self.flip(0.3) else topic_filter
        (reason,) = client.subscribe(name, qos=self.random.choice([0, 1, 2]), where=where)
        self.judge(person.user, topic_filter, reason)
        self.look()

    def subscribe_handle(self) -> None:
        user = self.random.choice(USERS)
        topic_filter = self.random.choice(FILTERS)
        handle, reasons = mailboxes.subscribe(
            self.world, topic_filter, user=user, random=self.random.randbytes(16)
        )
        assert reasons is not None
        self.judge(user, topic_filter, reasons[0])
        self.handles.append((handle, user))

    def judge(self, user: str, topic_filter: str, reason: int) -> None:
        if reason == ReasonCode.NOT_AUTHORIZED:
            return
        assert reason <= 2
        for topic in TOPICS:
            if matches(topic_filter, topic):
                assert is_allowed(self.rules, user, "subscribe", topic)

    def publish(self) -> None:
        present = self.present()
        if not present:
            return
        person, client = self.random.choice(present)
        topic = self.random.choice(TOPICS)
        client.publish(
            topic,
            self.say(person.user, topic),
            self.random.choice([0, 1, 2]),
            retain=self.flip(),
            properties=attributes(x=self.random.randrange(10)) if self.flip() else b"",
        )
        self.look()

    def poll(self) -> None:
        for handle, user in self.handles:
            for message in mailboxes.poll(self.world, handle, user=user):
                if not message.duplicate:
                    self.check_one(message.payload.encode(), user, retained=message.retain)

    def change_rules(self) -> None:
        self.look()
        self.rules = draw_rules(self.random, USERS)
        self.world.broker.change_rules(AccessRules(self.rules))
        self.world.settle()

    def restart(self) -> None:
        """With other rules, as after an edit of the file."""
        self.look()
        self.rules = draw_rules(self.random, USERS)
        for person in self.people:
            if person.will is not None:
                person.will.rules = self.rules
            person.client = person.will = None
        self.world = self.world.crash(rules=self.rules, spaces=(SPACE,))

    # What they see --------------------------------------------------------------------------------

    def look(self) -> None:
        for person, client in self.present():
            self.check(client.take(), person.user)

    def check(self, packets: Iterable[Packet], user: str) -> None:
        for packet in packets:
            if isinstance(packet, Publish) and not packet.duplicate:  # it had that one before
                self.check_one(packet.payload, user, retained=packet.retain)

    def check_one(self, payload: bytes, user: str, *, retained: bool) -> None:
        said = self.published[int(payload)]
        assert is_allowed(said.rules, said.user, "publish", said.topic)
        assert is_allowed(self.rules, user, "subscribe", said.topic)
        # Who could not have it when it was published gets it only if it is retained.
        assert retained or is_allowed(said.rules, user, "subscribe", said.topic)


@given(st.randoms(use_true_random=False), st.integers(1, 50))
def test_whatever_is_delivered_was_allowed(random: Random, steps: int) -> None:
    story = RandomRun(random)
    acts = [story.subscribe] * 6 + [story.publish] * 8 + [story.come_or_go] * 2
    acts += [story.subscribe_handle, story.poll, story.change_rules, story.restart]
    for _ in range(steps):
        random.choice(acts)()
    for person in story.people:
        if person.client is None:
            story.come(person)
    story.poll()


ALL = AccessRule(publish=("#",), subscribe=("#",))
NO_SECRETS = (AccessRule(deny=("secret/#",)), ALL)


def test_a_change_of_rules_ends_subscriptions_and_wills(caplog: pytest.LogCaptureFixture) -> None:
    world = World(rules=(ALL,))
    here = world.client("here")
    away = world.client("away", **PERSISTENT)
    dying = world.client("dying", will=Will(b"secret/w", b"gone"))
    for client in (here, away):
        assert client.subscribe("#", qos=1) == [1]
        assert client.subscribe("open/+", qos=1) == [1]
    away.lose()
    world.client("early").publish("secret/early", b"", 1)
    assert here.payloads() == [b""]
    world.broker.change_rules(AccessRules(NO_SECRETS))
    world.settle()
    assert "ended 2 subscriptions that are not allowed any more" in caplog.text
    dying.lose()
    publisher = world.client("publisher", user="root")
    world.broker.change_rules(AccessRules((AccessRule(user="root", publish=("#",)), *NO_SECRETS)))
    world.settle()
    for topic in ("secret/x", "open/x"):
        publisher.publish(topic, topic.encode(), 1)
    assert here.payloads() == [b"open/x"]
    away.connect()
    assert [message.payload for message in away.early if isinstance(message, Publish)] == [
        b"open/x"
    ]


def test_other_rules_after_a_restart_end_subscriptions_too() -> None:
    world = World(rules=(ALL,))
    away = world.client("away", **PERSISTENT)
    away.subscribe("#", qos=1)
    away.lose()
    world.client("dying", will=Will(b"secret/w", b"gone", retain=True))
    world = world.crash(rules=(AccessRule(user="root", publish=("#",)), *NO_SECRETS))
    assert not world.broker.retained.get(b"secret/w")
    world.client("publisher", user="root").publish("secret/x", b"x", 1)
    away.world = world
    away.connect()
    assert away.early == []
    assert world.disk.tables["subscriptions"] == {}


def test_a_change_of_rules_takes_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "REVIEWED_PER_PIECE", 2)
    monkeypatch.setattr(subscribe, "REVIEWED_PER_PIECE", 3)
    world = World(rules=(ALL,))
    for number in range(5):
        world.client(f"c{number}", **PERSISTENT).subscribe("secret/a", "b", "secret/c", "d")
    world.broker.change_rules(AccessRules(NO_SECRETS))
    turns = 1
    while world.broker.slices:
        world.broker.slices.run(lambda: True)
        turns += 1
    assert turns == 8
    assert world.broker.router.count == 10


def test_a_client_is_let_in_when_its_session_was_reviewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribe, "REVIEWED_PER_PIECE", 1)
    monkeypatch.setattr(outgoing_queue, "REVIEWED_PER_PIECE", 1)
    world = World(rules=(ALL,))
    client = world.client("c", **PERSISTENT)
    client.subscribe("open/#", "secret/#", qos=1)
    client.lose()
    publisher = world.client("publisher", user="root")
    for number in range(3):
        publisher.publish("secret/x", b"secret", 1)
        publisher.publish("open/x", b"%d" % number, 1)
    world.works = False
    world.broker.change_rules(AccessRules((AccessRule(user="root", publish=("#",)), *NO_SECRETS)))
    client.open()
    client.send(client.connect_packet)
    assert client.take() == []
    world.works = True
    world.settle()
    connack, *messages = client.take()
    assert isinstance(connack, Connack)
    assert [one.payload for one in messages if isinstance(one, Publish)] == [b"0", b"1", b"2"]
    assert list(world.broker.sessions["c"].subscriptions) == ["open/#"]
