"""Known logins in memory and on disk."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.broker.auth.known_logins import RECORD_BYTES, KnownLogins, LoginFile

PAIRS = st.tuples(st.sampled_from(["ann", "bob", "", "a:b"]), st.sampled_from(["1", "2", "3"]))


@given(st.lists(PAIRS, max_size=30), st.integers(1, 6))
def test_the_latest_pairs_are_known(pairs: list[tuple[str, str]], count_max: int) -> None:
    known = KnownLogins(b"", count_max)
    latest: dict[tuple[str, str], None] = {}
    for pair in pairs:
        is_news = pair not in latest
        assert bool(known.add(*pair)) == is_news
        latest.pop(pair, None)
        latest[pair] = None
        latest = dict.fromkeys([*latest][-count_max:])
        assert len(known) == len(latest)
    for pair in pairs:
        assert known.knows(*pair) == (pair in latest)
    again = KnownLogins(known.records(), count_max)
    assert all(again.knows(*pair) for pair in latest)
    assert again.records() == known.records()


def test_user_and_address_are_not_mixed_up() -> None:
    known = KnownLogins(b"", 10)
    known.add("ann1", "2")
    assert not known.knows("ann", "12")


def test_half_a_record_is_none() -> None:
    known = KnownLogins(b"", 10)
    record = known.add("ann", "1")
    again = KnownLogins(record + record[:5], 10)
    assert again.records() == record
    assert again.knows("ann", "1")


def test_a_file_is_its_owners_and_grows_by_records(tmp_path: Path) -> None:
    file = LoginFile(tmp_path / "logins")
    assert file.read() == b""
    file.append(b"a" * RECORD_BYTES)
    file.append(b"b" * RECORD_BYTES)
    assert file.read() == b"a" * RECORD_BYTES + b"b" * RECORD_BYTES
    assert (tmp_path / "logins").stat().st_mode & 0o777 == 0o600
    file.replace(b"c" * RECORD_BYTES)
    assert LoginFile(tmp_path / "logins").read() == b"c" * RECORD_BYTES
    assert (tmp_path / "logins").stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["logins"]


def test_a_file_that_cannot_be_used_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "logins").mkdir()
    file = LoginFile(tmp_path / "logins")
    assert file.read() == b""
    file.append(b"a" * RECORD_BYTES)
    assert len(caplog.messages) == 1
    assert "cannot use" in caplog.text
