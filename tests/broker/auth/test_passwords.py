"""The password file on a real disk, with real hashes."""

import os
import pty
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from argon2 import PasswordHasher, extract_parameters
from argon2.low_level import Type

from dovetail.broker.auth import passwords
from dovetail.broker.auth.passwords import (
    HASH_MEMORY_KIB,
    HASH_ROUNDS,
    PasswordFile,
    delete_user,
    parse,
    set_password,
)
from dovetail.errors import ConfigError

# Cheap to verify, for tests that are not about cost.
LIGHT = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users"


def test_set_and_verify(file: Path) -> None:
    set_password(file, "ann", b"secret")
    set_password(file, "bob", "пароль\0".encode())
    loaded = PasswordFile.load(file)
    assert loaded.users == ("ann", "bob")
    assert loaded.verify("ann", b"secret")
    assert loaded.verify("bob", "пароль\0".encode())
    assert not loaded.verify("ann", b"Secret")
    assert not loaded.verify("ann", b"")
    assert not loaded.verify("Ann", b"secret")
    assert not loaded.verify("", b"secret")


def test_another_password_replaces_the_first(file: Path) -> None:
    set_password(file, "ann", b"one")
    before = PasswordFile.load(file)
    assert before.verify("ann", b"one")
    set_password(file, "ann", b"two")
    after = PasswordFile.load(file)
    assert not after.verify("ann", b"one")
    assert after.verify("ann", b"two")
    assert before.verify("ann", b"one")  # as it was loaded


def test_hashes_are_argon2id_at_the_advised_cost(file: Path) -> None:
    set_password(file, "ann", b"secret")
    user, _, encoded = file.read_text().rstrip("\n").partition(":")
    cost = extract_parameters(encoded)
    assert user == "ann"
    assert (cost.type, cost.memory_cost, cost.time_cost, cost.parallelism) == (
        Type.ID,
        HASH_MEMORY_KIB,
        HASH_ROUNDS,
        1,
    )


def test_verified_pairs_are_remembered(file: Path) -> None:
    file.write_text(f"ann:{LIGHT.hash('secret')}\n")
    loaded = PasswordFile.load(file)
    assert not loaded.remembers("ann", b"secret")
    assert loaded.verify("ann", b"secret")
    assert loaded.remembers("ann", b"secret")
    assert loaded.verify("ann", b"secret")
    assert not loaded.verify("ann", b"wrong")
    assert not loaded.remembers("ann", b"wrong")
    # Where the name ends and the password begins is part of the pair.
    assert not loaded.remembers("an", b"nsecret")
    assert not PasswordFile.load(file).remembers("ann", b"secret")


def test_what_is_remembered_is_bounded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "REMEMBERED_PAIRS_MAX", 2)
    file.write_text("".join(f"u{number}:{LIGHT.hash('x')}\n" for number in range(3)))
    loaded = PasswordFile.load(file)
    assert all(loaded.verify(user, b"x") for user in loaded.users)
    assert [loaded.remembers(user, b"x") for user in loaded.users] == [False, True, True]


def test_nothing_of_a_password_is_remembered_in_clear(file: Path) -> None:
    file.write_text(f"ann:{LIGHT.hash('secret')}\n")
    one, other = PasswordFile.load(file), PasswordFile.load(file)
    assert one.verify("ann", b"secret")
    assert other.verify("ann", b"secret")
    assert one._remembered.keys().isdisjoint(other._remembered)


def test_who_is_unknown_costs_a_hash_like_the_others(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(f"ann:{LIGHT.hash('a')}\nbob:{LIGHT.hash('b')}\n")
    set_password(file, "eve", b"c")
    loaded = PasswordFile.load(file)
    verified: list[str] = []
    fits = passwords._matches

    def counted(encoded: str, password: bytes) -> bool:
        verified.append(encoded)
        return fits(encoded, password)

    monkeypatch.setattr(passwords, "_matches", counted)
    assert not loaded.verify("nobody", b"a")
    (encoded,) = verified
    cost = extract_parameters(encoded)
    assert (cost.memory_cost, cost.time_cost, cost.hash_len) == (8, 1, 32)


def test_a_file_without_users(file: Path) -> None:
    file.write_text("# nobody yet\n\n")
    assert not PasswordFile.load(file).verify("ann", b"secret")


def test_threads_may_verify_at_once(file: Path) -> None:
    file.write_text("".join(f"u{number}:{LIGHT.hash(f'p{number}')}\n" for number in range(20)))
    loaded = PasswordFile.load(file)
    with ThreadPoolExecutor(8) as threads:
        right = threads.map(
            lambda n: loaded.verify(f"u{n % 20}", f"p{n % 20}".encode()), range(200)
        )
        wrong = threads.map(lambda n: loaded.verify(f"u{n % 20}", b"wrong"), range(200))
        assert all(right)
        assert not any(wrong)


def test_other_lines_stay_as_they_are(file: Path) -> None:
    ann, bob = LIGHT.hash("a"), LIGHT.hash("b")
    file.write_bytes(f"# staff\r\nann:{ann}\r\n\n  \nbob:{bob}\n# end".encode())
    set_password(file, "bob", b"new")
    lines = file.read_bytes().decode().split("\n")
    assert lines[:4] == ["# staff\r", f"ann:{ann}\r", "", "  "]
    assert lines[5:] == ["# end", ""]
    set_password(file, "eve", b"x")
    delete_user(file, "bob")
    assert file.read_bytes().decode().split("\n")[:5] == [*lines[:4], "# end"]
    assert PasswordFile.load(file).users == ("ann", "eve")


def test_a_user_who_is_not_there_cannot_be_deleted(file: Path) -> None:
    set_password(file, "ann", b"x")
    before = file.read_bytes()
    with pytest.raises(ConfigError, match="there is no user 'bob'"):
        delete_user(file, "bob")
    assert file.read_bytes() == before
    with pytest.raises(ConfigError, match=r"cannot read the password file .*: No such file"):
        delete_user(file.with_name("none"), "bob")


def test_a_new_file_is_its_owners_alone(file: Path) -> None:
    previous = os.umask(0)
    try:
        set_password(file, "ann", b"x")
    finally:
        os.umask(previous)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("before", "after"), [(0o600, 0o600), (0o640, 0o640), (0o644, 0o640), (0o666, 0o640)]
)
def test_a_group_may_go_on_reading_and_the_world_may_not(
    file: Path, before: int, after: int
) -> None:
    file.write_text("")
    file.chmod(before)
    set_password(file, "ann", b"x")
    assert stat.S_IMODE(file.stat().st_mode) == after


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_stays_the_owner(file: Path) -> None:
    file.write_text("")
    os.chown(file, 12_345, 23_456)
    set_password(file, "ann", b"x")
    assert (file.stat().st_uid, file.stat().st_gid) == (12_345, 23_456)


def test_a_link_stays_one(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere" / "real"
    target.parent.mkdir()
    file.symlink_to(target)
    set_password(file, "ann", b"x")
    assert file.is_symlink()
    assert PasswordFile.load(target).users == ("ann",)


def test_nothing_is_left_behind(file: Path) -> None:
    set_password(file, "ann", b"x")
    set_password(file, "ann", b"y")
    assert [entry.name for entry in file.parent.iterdir()] == ["users"]


def test_a_failed_change_leaves_all_as_it_was(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_password(file, "ann", b"x")
    before = file.read_bytes()

    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ConfigError, match=r"cannot write the password file .*: No space left"):
        set_password(file, "ann", b"y")
    assert file.read_bytes() == before
    assert [entry.name for entry in file.parent.iterdir()] == ["users"]


def test_changes_at_once_are_all_kept(file: Path) -> None:
    program = (
        "import sys; from dovetail.broker.auth.passwords import set_password\n"
        "for n in range(5): set_password(sys.argv[1], f'{sys.argv[2]}-{n}', b'x')"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(file), name]) for name in "abc"
    ]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert sorted(PasswordFile.load(file).users) == [f"{a}-{n}" for a in "abc" for n in range(5)]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot write the password file .*: No such file"):
        set_password(tmp_path / "none" / "users", "ann", b"x")


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ("", "it is empty"),
        ("a:b", "':' ends a user name"),
        ("#a", "is a comment"),
        (" a", "a space"),
        ("a ", "a space"),
        ("a\nb", "control character"),
        ("a\x85b", "control character"),
        ("a\u2028b", "control character"),
        ("a\udc80b", "control character"),
        ("a" * 65_536, "more than 65,535 bytes"),
    ],
)
def test_names_that_no_user_can_have(file: Path, user: str, why: str) -> None:
    with pytest.raises(ConfigError, match=r"user name .* will not do") as caught:
        set_password(file, user, b"x")
    assert why in str(caught.value)
    assert not file.exists()


@pytest.mark.parametrize("user", ["a b", "ä", "日本", "a#b", "$argon", "a=b,c"])
def test_names_that_a_user_can_have(file: Path, user: str) -> None:
    set_password(file, user, b"x")
    assert PasswordFile.load(file).users == (user,)


@pytest.mark.parametrize("password", [b"", b"x" * 65_536])
def test_passwords_that_nobody_can_have(file: Path, password: bytes) -> None:
    with pytest.raises(ConfigError, match="the password "):
        set_password(file, "ann", password)


GOOD = "$argon2id$v=19$m=8,t=1,p=1$AAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA"


def test_the_shortest_good_hash_is_one_to_argon2_too() -> None:
    assert parse(f"a:{GOOD}", "f")["a"].cost == (8, 1, 1)
    assert not PasswordFile(parse(f"a:{GOOD}", "f")).verify("a", b"x")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("ann", "it takes user:hash"),
        (f":{GOOD}", "the user name '' will not do"),
        (f" x:{GOOD}", "the user name ' x' will not do"),
        ("ann:", "no Argon2id hash"),
        ("ann:secret", "no Argon2id hash"),
        (f"ann:x{GOOD}", "no Argon2id hash"),
        (f"ann:{GOOD}=", "no Argon2id hash"),
        (f"ann:{GOOD}AAA", "no Argon2id hash"),
        (f"ann:{GOOD[:-1]}B", "no Argon2id hash"),  # stray bits
        (f"ann:{GOOD}$", "no Argon2id hash"),
        (f"ann:{GOOD.replace('argon2id', 'argon2i')}", "no Argon2id hash"),
        (f"ann:{GOOD.replace('v=19', 'v=16')}", "no Argon2id hash"),
        (f"ann:{GOOD.replace('m=8', 'm=7')}", "no Argon2id hash"),
        (f"ann:{GOOD.replace('m=8', 'm=999999999')}", "no Argon2id hash"),
        (f"ann:{GOOD.replace('t=1', 't=0')}", "no Argon2id hash"),
        (f"ann:{GOOD.replace('p=1', 'p=2')}", "no Argon2id hash"),
        (f"ann:{GOOD.replace('p=1', 'p=0')}", "no Argon2id hash"),
        (f"eve:{GOOD}", "'eve' is on line 2 already"),
    ],
)
def test_malformed_lines_are_named(file: Path, line: str, why: str) -> None:
    file.write_text(f"# users\neve:{GOOD}\n\n{line}\n")
    before = file.read_bytes()
    with pytest.raises(ConfigError) as caught:
        PasswordFile.load(file)
    assert caught.value.message.startswith(f"{file}:4: ")
    assert why in caught.value.message
    with pytest.raises(ConfigError):
        set_password(file, "bob", b"x")
    assert file.read_bytes() == before


def test_a_file_that_is_no_text(file: Path) -> None:
    file.write_bytes(b"# \n\xff\n")
    with pytest.raises(ConfigError, match=":2: not UTF-8 text"):
        PasswordFile.load(file)


def passwd(*arguments: str, typed: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "dovetail", "passwd", *arguments],
        input=typed,
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\nmore\n"])
def test_the_command_reads_a_password_from_a_pipe(file: Path, end: bytes) -> None:
    done = passwd(str(file), "ann", "--stdin", typed=b" se cret " + end)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode() == f"{file}: the password of ann is set\n"
    assert PasswordFile.load(file).verify("ann", b" se cret ")


def test_the_command_lists_and_deletes(file: Path) -> None:
    file.write_text(f"ann:{GOOD}\n# x\nbob:{GOOD}\n")
    assert passwd(str(file)).stdout == b"ann\nbob\n"
    assert passwd(str(file), "ann", "--delete").returncode == 0
    assert passwd(str(file)).stdout == b"bob\n"
    assert file.read_text() == f"# x\nbob:{GOOD}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--stdin"], b"name the user too"),
        (["--delete"], b"name the user too"),
        (["bob", "--delete"], b"there is no user 'bob'"),
        (["bob"], b"--stdin reads it from a pipe"),
        (["bob", "--stdin"], b"the password is empty"),
        (["a:b", "--stdin"], b"the user name 'a:b' will not do"),
    ],
)
def test_what_the_command_refuses(file: Path, arguments: list[str], words: bytes) -> None:
    file.write_text(f"ann:{GOOD}\n")
    done = passwd(str(file), *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert b"Traceback" not in done.stderr
    assert file.read_text() == f"ann:{GOOD}\n"


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1_000)
    except OSError:  # Linux: the other side is closed
        return b""


def test_the_command_asks_twice_without_echo(file: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "dovetail", "passwd", str(file), "ann"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    screen = b""
    questions = [b"Password of ann: ", b"Repeat for confirmation: "]
    while shown := _read(ours):
        screen += shown
        if questions and screen.endswith(questions[0]):
            questions.pop(0)
            os.write(ours, b"secret\n")
    os.close(ours)
    assert process.wait() == 0, screen
    assert f"{file}: the password of ann is set" in screen.decode()
    assert b"secret" not in screen
    assert PasswordFile.load(file).verify("ann", b"secret")
