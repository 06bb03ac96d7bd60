"""Checkers notice each mutation of random clean histories."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliability.checker import check
from reliability.tests.mutations import MUTATIONS, Mutation
from reliability.tests.story import NODES, Story


def clean(random: Random) -> Story:
    """Return a history in which every promise is kept, with some calm faults."""
    story = Story()
    filters = ["t/#", "t/+/x", "t/1/x"]
    readers = {f"reader-{index}": random.choice(filters) for index in range(3)}
    for name, topic_filter in readers.items():
        story.subscriber(name, topic_filter, random.choice([1, 2]), random.choice(NODES))
    for name in ("member-1", "member-2"):
        story.subscriber(name, "t/+/x", 2, random.choice(NODES), group="g")
    story.subscriber("watcher", "w/#")
    story.subscriber("stranger", "u", 1)
    story.publish("writer:1", "u", 1, to=("stranger",))
    for number in range(2, 12):
        topic = random.choice(["t/1/x", "t/2/x"])
        qos = random.choice([1, 2])
        story.publish(f"writer:{number}", topic, qos)
        for name, topic_filter in readers.items():
            if topic_filter != "t/1/x" or topic == "t/1/x":
                granted = story.granted(name)
                story.deliver(name, f"writer:{number}", qos=min(qos, granted))
        story.deliver(random.choice(["member-1", "member-2"]), f"writer:{number}")
    story.publish("keeper:1", "r", 1, retain=True)
    story.publish("keeper:2", "r", 1, retain=True)
    story.read("r", dict.fromkeys(NODES, "keeper:2"))
    story.connect("short-lived", will="short-lived:1", will_topic="w/1", will_qos=2)
    story.lose("short-lived")
    story.deliver("watcher", "short-lived:1", topic="w/1", qos=2)
    return story


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_clean_histories_are_clean(seed: int) -> None:
    assert clean(Random(seed)).broken() == []


@pytest.mark.parametrize(("promise", "mutate"), MUTATIONS.values(), ids=MUTATIONS)
@pytest.mark.parametrize("seed", range(5))
def test_a_mutation_is_noticed(seed: int, promise: str, mutate: Mutation) -> None:
    random = Random(seed)
    events = mutate(clean(random).events, random)
    if events is None:
        pytest.fail("the history has nothing to falsify")
    broken = {one.promise.name for one in check(events) if not one.holds}
    assert promise in broken
