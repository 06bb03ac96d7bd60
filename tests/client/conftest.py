"""A Mosquitto broker for all tests of a file."""

from collections.abc import Iterator

import pytest

from support.processes.mosquitto import Mosquitto


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path_factory.mktemp("mosquitto")) as broker:
        yield broker
