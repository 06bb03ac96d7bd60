"""Lines: in order for each publisher, whoever is done first."""

from random import Random

import pytest

from dovetail.matcher.publisher_order import Lines, Place


@pytest.mark.parametrize("seed", range(10))
def test_in_order_whatever_is_done_first(seed: int) -> None:
    random = Random(seed)
    lines: Lines[tuple[str, int]] = Lines()
    released: dict[str, list[int]] = {"a": [], "b": []}
    waiting: list[Place[tuple[str, int]]] = []
    taken = dict.fromkeys(released, 0)
    while taken["a"] + taken["b"] < 100 or waiting:
        if waiting and (random.random() < 0.5 or taken["a"] + taken["b"] >= 100):
            place = waiting.pop(random.randrange(len(waiting)))
            for origin, number in lines.done(place):
                released[origin].append(number)
        else:
            origin = random.choice(["a", "b"])
            waiting.append(lines.take(origin, (origin, taken[origin])))
            taken[origin] += 1
        assert len(lines) == sum(taken.values()) - sum(map(len, released.values()))
    for origin, numbers in released.items():
        assert numbers == list(range(taken[origin]))
        assert lines.is_empty(origin)


def test_a_line_has_an_end() -> None:
    lines: Lines[int] = Lines(waiting_max=2)
    first = lines.take("a", 1)
    second = lines.take("a", 2)
    assert lines.is_full("a")
    assert not lines.is_full("b")
    assert lines.done(second) == []
    assert lines.is_full("a")
    assert lines.done(first) == [1, 2]
    assert lines.is_empty("a")


def test_who_does_not_wait_any_longer() -> None:
    lines: Lines[int] = Lines()
    first, second, third = (lines.take("a", number) for number in range(3))
    other = lines.take("b", 9)
    assert lines.done(second) == []
    assert [one for place in lines.those_of("a") for one in lines.done(place)] == [0, 1, 2]
    assert lines.is_empty("a")
    # Answers that come too late.
    assert lines.done(first) == lines.done(third) == []
    assert lines.origins() == ["b"]
    assert lines.done(other) == [9]
    assert lines.those_of("b") == []
