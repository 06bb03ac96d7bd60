"""benchmarks/workers.py with a pair of clients that fails."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, TracebackType

import pytest

_FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(_FOLDER))
    specification = importlib.util.spec_from_file_location("workers", _FOLDER / "workers.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "workers", module)
    specification.loader.exec_module(module)
    return module


class FailingLoad:
    """A load that fails during its warm-up at the second pair."""

    _runs = 0

    def __init__(self, _port: int, traffic: object) -> None:
        self._fails = getattr(traffic, "pair", 0) == 1

    def __enter__(self) -> "FailingLoad":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def run(self, _seconds: float) -> None:
        if self._fails:
            raise AssertionError("a message is missing")


def test_a_failing_pair_does_not_block_the_others(
    workers: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "Load", FailingLoad)
    with pytest.raises(SystemExit, match="FAILED: QoS 1"):
        workers.measure(1, "QoS 1", 3, 0.0)
