"""Extras: a checkout installs them; elsewhere the error says what to install."""

import importlib.util
import sys
from pathlib import Path

import pytest

from dovetail.errors import MissingDependencyError
from dovetail.process import extras
from dovetail.process.extras import Extra, is_obtainable, require

SET_UP = '#!/bin/sh\necho "$1" >>"$(dirname "$0")/asked"\nexit {status}\n'


class Checkout:
    """One whose set-up only notes what it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / ".venv" / "dovetail-setup"
        self.state.mkdir(parents=True)
        (folder / "scripts").mkdir()
        self.answer(0)

    def answer(self, status: int) -> None:
        script = self.folder / "scripts" / "setup"
        script.write_text(SET_UP.format(status=status))
        script.chmod(0o755)

    def asked(self) -> list[str]:
        file = self.folder / "scripts" / "asked"
        return file.read_text().split() if file.exists() else []


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    made = Checkout(tmp_path)
    monkeypatch.setattr(extras, "_CHECKOUT", tmp_path)
    monkeypatch.setattr(extras, "_STATE", made.state)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    monkeypatch.delenv("DOVETAIL_COMMAND", raising=False)
    return made


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)


def test_a_missing_stage_is_set_up(checkout: Checkout) -> None:
    require(Extra.SPARK)
    assert checkout.asked() == ["spark"]


def test_an_installed_stage_costs_nothing(checkout: Checkout) -> None:
    (checkout.state / "archive").touch()
    require(Extra.ARCHIVE)
    assert checkout.asked() == []


def test_the_launcher_keeps_a_stage_up_to_date(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout.state / "archive").touch()
    monkeypatch.setenv("DOVETAIL_COMMAND", "./dovetail")
    require(Extra.ARCHIVE)
    assert checkout.asked() == ["archive"]


def test_a_failed_set_up_ends_the_process(checkout: Checkout) -> None:
    checkout.answer(2)
    with pytest.raises(SystemExit) as end:
        require(Extra.SPARK)
    assert end.value.code == 2


@pytest.mark.usefixtures("nothing_installed")
def test_a_package_is_missing_after_the_set_up(checkout: Checkout) -> None:
    """No second try: a sentence."""
    with pytest.raises(MissingDependencyError, match="pyspark and pyarrow cannot be imported"):
        require(Extra.SPARK)
    assert checkout.asked() == ["spark"]


@pytest.mark.parametrize("is_elsewhere", [False, True])
@pytest.mark.usefixtures("nothing_installed")
def test_without_a_checkout_the_error_names_the_extra(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, is_elsewhere: bool
) -> None:
    """Be there a checkout around the package or not."""
    if is_elsewhere:
        monkeypatch.setattr(sys, "prefix", "/")
    else:
        checkout.state.rmdir()
    with pytest.raises(MissingDependencyError) as refusal:
        require(Extra.ARCHIVE)
    assert 'pip install "dovetail[archive]"' in str(refusal.value)
    assert checkout.asked() == []
    assert not is_obtainable(Extra.ARCHIVE)


@pytest.mark.usefixtures("nothing_installed", "checkout")
def test_a_checkout_can_install_every_extra() -> None:
    assert all(is_obtainable(extra) for extra in Extra)
