"""Settings for all tests."""

import pytest
from hypothesis import settings

# A kernel's first call may compile it, and the machine may be shared: no deadlines. A failing
# example prints what replays it.
settings.register_profile("dovetail", deadline=None, print_blob=True)
settings.load_profile("dovetail")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds",
        type=seeds,
        metavar="FIRST:END",
        help="run tests that have a seed with these, and not with their own",
    )


def seeds(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end))


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Before pytest makes the tests of a function, one for each seed."""
    chosen = metafunc.config.getoption("seeds")
    if chosen is not None:
        marks = metafunc.definition.own_markers
        marks[:] = [
            pytest.mark.parametrize("seed", chosen).mark
            if mark.name == "parametrize" and mark.args[0] == "seed"
            else mark
            for mark in marks
        ]
