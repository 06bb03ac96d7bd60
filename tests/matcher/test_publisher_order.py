"""Publications are released in order for each publisher, whichever completes first."""

from random import Random

import pytest

from dovetail.matcher.publisher_order import PublisherOrder, QueuedPublication


@pytest.mark.parametrize("seed", range(10))
def test_in_order_whatever_is_done_first(seed: int) -> None:
    random = Random(seed)
    lines: PublisherOrder[tuple[str, int]] = PublisherOrder()
    released: dict[str, list[int]] = {"a": [], "b": []}
    waiting: list[QueuedPublication[tuple[str, int]]] = []
    taken = dict.fromkeys(released, 0)
    while taken["a"] + taken["b"] < 100 or waiting:
        if waiting and (random.random() < 0.5 or taken["a"] + taken["b"] >= 100):
            place = waiting.pop(random.randrange(len(waiting)))
            for origin, number in lines.complete(place):
                released[origin].append(number)
        else:
            origin = random.choice(["a", "b"])
            waiting.append(lines.append(origin, (origin, taken[origin])))
            taken[origin] += 1
        assert len(lines) == sum(taken.values()) - sum(map(len, released.values()))
    for origin, numbers in released.items():
        assert numbers == list(range(taken[origin]))
        assert lines.is_empty(origin)


def test_a_line_has_an_end() -> None:
    lines: PublisherOrder[int] = PublisherOrder(waiting_max=2)
    first = lines.append("a", 1)
    second = lines.append("a", 2)
    assert lines.is_full("a")
    assert not lines.is_full("b")
    assert lines.complete(second) == []
    assert lines.is_full("a")
    assert lines.complete(first) == [1, 2]
    assert lines.is_empty("a")


def test_who_does_not_wait_any_longer() -> None:
    lines: PublisherOrder[int] = PublisherOrder()
    first, second, third = (lines.append("a", number) for number in range(3))
    other = lines.append("b", 9)
    assert lines.complete(second) == []
    assert [one for place in lines.entries_of("a") for one in lines.complete(place)] == [0, 1, 2]
    assert lines.is_empty("a")
    # Answers that come too late.
    assert lines.complete(first) == lines.complete(third) == []
    assert lines.origins() == ["b"]
    assert lines.complete(other) == [9]
    assert lines.entries_of("b") == []
