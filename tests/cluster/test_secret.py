"""The secret's file: readable for its owner only, and long enough."""

from pathlib import Path

import pytest

from dovetail.cluster.secret import key_of, make_secret, read_secret, seed_of
from dovetail.errors import ConfigError


def write(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    file = folder / "secret"
    file.write_bytes(content)
    file.chmod(mode)
    return file


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_line_break_at_its_end_does_not_count(tmp_path: Path, end: bytes) -> None:
    assert read_secret(write(tmp_path, b"0123456789abcdef" + end)) == b"0123456789abcdef"


def test_a_service_may_read_it_as_its_group(tmp_path: Path) -> None:
    assert read_secret(write(tmp_path, bytes(32), 0o640)) == bytes(32)


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        (b"0123456789abcde\n", 0o600, "has 15 bytes; it takes 16"),
        (b"", 0o600, "has 0 bytes"),
        (bytes(32), 0o604, "every user of this machine may read"),
        (bytes(5_000), 0o600, "more than 4,096 bytes"),
    ],
)
def test_what_is_no_secret(tmp_path: Path, content: bytes, mode: int, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read_secret(write(tmp_path, content, mode))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the cluster's secret"):
        read_secret(tmp_path / "nothing")


def test_each_secret_and_each_cluster_has_its_key() -> None:
    keys = [key_of(secret, name) for secret in (b"", b"x" * 16, b"y" * 16) for name in "ab"]
    assert len({*keys}) == 6
    assert keys[0] == key_of(b"", "a")


def test_one_is_made_for_its_owner_alone_and_only_once(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "secret"
    make_secret(file)
    assert file.stat().st_mode & 0o777 == 0o600
    secret = read_secret(file)
    assert len(secret) == 64
    make_secret(file)
    assert read_secret(file) == secret
    assert [*file.parent.iterdir()] == [file]


def test_one_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot make the cluster's secret"):
        make_secret(tmp_path / "file" / "secret")


def test_the_seed_goes_by_secret_and_cluster() -> None:
    seeds = {seed_of(secret, cluster) for secret in (b"a", b"b", b"") for cluster in ("x", "y")}
    assert len(seeds) == 6
    assert all(0 <= seed < 1 << 64 for seed in seeds)
    assert seed_of(b"a", "x") == seed_of(b"a", "x")
    assert seed_of(b"a", "x").to_bytes(8, "big") not in key_of(b"a", "x")
