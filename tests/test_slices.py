"""Work in pieces is completed in turns, within the time budget."""

from collections.abc import Generator

import pytest

from dovetail.slices import SliceScheduler, Work, run_to_end


class Loop:
    """A loop that counts requested turns, and whose time passes by pieces."""

    def __init__(self) -> None:
        self.wakes = 0
        self.done: list[str] = []
        self.slices = SliceScheduler(self.wake)

    def wake(self) -> None:
        self.wakes += 1

    def work(self, name: str, pieces: int) -> Work:
        for piece in range(pieces):
            self.done.append(f"{name}{piece}")
            if piece < pieces - 1:
                yield

    def turn(self, pieces: int) -> None:
        left = iter(range(pieces - 1, -1, -1))
        self.slices.run(lambda: not next(left))


def test_short_work_is_done_at_once() -> None:
    loop = Loop()
    loop.slices.begin(loop.work("a", 1))
    assert (loop.done, len(loop.slices), loop.wakes) == (["a0"], 0, 0)


def test_deferred_work_starts_in_a_later_turn() -> None:
    loop = Loop()
    loop.slices.defer(loop.work("a", 1))
    assert (loop.done, loop.wakes) == ([], 1)
    loop.turn(1)
    assert (loop.done, len(loop.slices)) == (["a0"], 0)


def test_works_take_turns_within_one_budget() -> None:
    loop = Loop()
    for name in "ab":
        loop.slices.begin(loop.work(name, 3))
    assert (loop.done, loop.wakes) == (["a0", "b0"], 1)
    loop.turn(3)
    assert loop.done[2:] == ["a1", "b1", "a2"]
    assert (len(loop.slices), loop.wakes) == (1, 2)
    loop.turn(3)
    assert loop.done[5:] == ["b2"]
    assert (len(loop.slices), loop.wakes) == (0, 2)


def test_a_turn_does_one_piece_though_its_time_is_up() -> None:
    loop = Loop()
    loop.slices.begin(loop.work("a", 3))
    loop.slices.run(lambda: True)
    assert loop.done == ["a0", "a1"]


def test_work_that_fails_does_not_stop_the_others() -> None:
    loop = Loop()

    def fail() -> Work:
        yield
        raise RuntimeError("of this work")

    loop.slices.begin(fail())
    loop.slices.begin(loop.work("a", 2))
    with pytest.raises(RuntimeError, match="of this work"):
        loop.turn(9)
    assert (len(loop.slices), loop.wakes) == (1, 2)
    loop.turn(9)
    assert loop.done == ["a0", "a1"]


def test_run_to_end_returns_the_result() -> None:
    def add() -> Generator[None, None, int]:
        total = 0
        for number in range(4):
            total += number
            yield
        return total

    assert run_to_end(add()) == 6
