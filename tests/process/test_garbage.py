"""The collector is off within the block, and visits only later objects."""

import gc

import pytest

from dovetail.process import garbage


def test_it_is_off_within_the_block_and_on_after_it() -> None:
    before = gc.get_freeze_count()
    try:
        with garbage.paused():
            assert not gc.isenabled()
            made = [[number] for number in range(100)]
        assert gc.isenabled()
        assert gc.get_freeze_count() >= before + len(made)
    finally:
        gc.unfreeze()


def test_it_is_on_after_an_error() -> None:
    try:
        with pytest.raises(ImportError), garbage.paused():
            raise ImportError
        assert gc.isenabled()
    finally:
        gc.unfreeze()
