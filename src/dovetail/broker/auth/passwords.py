"""The password file: lines of `user:hash` with Argon2id hashes, comments, and empty lines.

Rules:

- A loaded `PasswordFile` does not change. Load it again to see changes of the file.
- `verify` takes the time of one hash for known and unknown users alike. It blocks, so call it in a
  thread.
- A pair that was right before is remembered. So ten thousand clients that return at once do not
  cost ten thousand hashes. A remembered digest needs a key that only this process has, so it tells
  nothing about the password.
- A change replaces the whole file, or leaves it as it was.
"""

import base64
import binascii
import fcntl
import hmac
import os
import re
import secrets
import stat
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from argon2 import PasswordHasher
from argon2.exceptions import VerificationError

from dovetail.errors import ConfigError

HASH_MEMORY_KIB = 19 * 1_024
HASH_ROUNDS = 2
HASH_LANES = 1
"""19 MiB, 2 rounds, 1 lane: the minimum that OWASP's password storage sheet advises for Argon2id.
It is the minimum because a broker verifies many clients, and each running hash needs its memory."""

HASH_MEMORY_KIB_MAX = 1 << 22
"""4 GiB. A hash in a file that needs more memory is a mistake."""

REMEMBERED_PAIRS_MAX = 100_000
"""Remembered pairs of user and password, some 100 bytes each. The oldest is forgotten first."""

PASSWORD_BYTES_MAX = 65_535
"""The most that a CONNECT packet can hold (MQTT 5.0 section 3.1.3.6), also for user names."""

_HASH = re.compile(
    r"\$argon2id\$v=19\$m=(\d{1,9}),t=(\d{1,9}),p=(\d{1,9})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)"
)
_hasher = PasswordHasher(time_cost=HASH_ROUNDS, memory_cost=HASH_MEMORY_KIB, parallelism=HASH_LANES)


class HashCost(NamedTuple):
    memory_kib: int
    rounds: int
    lanes: int


class PasswordEntry(NamedTuple):
    line: int
    hash: str
    cost: HashCost


class PasswordFile:
    """The users and their hashes, as of the time when the file was loaded."""

    def __init__(self, entries: dict[str, PasswordEntry]) -> None:
        self._hashes = {user: entry.hash for user, entry in entries.items()}
        self._decoy = _decoy(_most_common_cost(entries))
        self._key = secrets.token_bytes(32)
        self._remembered: dict[bytes, None] = {}
        self._lock = Lock()

    @classmethod
    def load(cls, path: Path | str) -> "PasswordFile":
        return cls(parse(_read(Path(path)), str(path)))

    @property
    def users(self) -> tuple[str, ...]:
        """All users, in the order of the file."""
        return tuple(self._hashes)

    def remembers(self, user: str, password: bytes) -> bool:
        """Was this pair right before? If so, `verify` is quick."""
        return self._fingerprint(user, password) in self._remembered

    def verify(self, user: str, password: bytes) -> bool:
        """Is this the user's password? Blocks for the time of one hash. Any thread may call it."""
        fingerprint = self._fingerprint(user, password)
        if fingerprint in self._remembered:
            return True
        stored = self._hashes.get(user)
        is_correct = _matches(self._decoy if stored is None else stored, password)
        if stored is None or not is_correct:
            return False
        with self._lock:
            if len(self._remembered) >= REMEMBERED_PAIRS_MAX:
                self._remembered.pop(next(iter(self._remembered)), None)
            self._remembered[fingerprint] = None
        return True

    def _fingerprint(self, user: str, password: bytes) -> bytes:
        name = user.encode()
        return hmac.digest(self._key, len(name).to_bytes(4) + name + password, "sha256")


def set_password(path: Path | str, user: str, password: bytes) -> None:
    """Add the user, or change their password. Create the file if it does not exist."""
    check_user(user)
    if not password:
        raise ConfigError("the password is empty.")
    if len(password) > PASSWORD_BYTES_MAX:
        raise ConfigError(f"the password has more than {PASSWORD_BYTES_MAX:,} bytes.")
    line = f"{user}:{_hasher.hash(password)}"

    def change(lines: list[str], entries: dict[str, PasswordEntry]) -> list[str]:
        if user not in entries:
            return [*lines, line]
        at = entries[user].line - 1
        return [*lines[:at], line, *lines[at + 1 :]]

    _rewrite(Path(path), change, must_exist=False)


def delete_user(path: Path | str, user: str) -> None:
    def change(lines: list[str], entries: dict[str, PasswordEntry]) -> list[str]:
        if user not in entries:
            raise ConfigError(f"{path}: there is no user {user!r}.")
        del lines[entries[user].line - 1]
        return lines

    _rewrite(Path(path), change, must_exist=True)


def check_user(user: str) -> None:
    """Raise ConfigError if a password file cannot have this user name."""
    why = _user_fault(user)
    if why is not None:
        raise ConfigError(f"the user name {user!r} will not do: {why}.")


def parse(text: str, source: str) -> dict[str, PasswordEntry]:
    """Return the users of a password file. Raise ConfigError with the line of an error."""
    entries: dict[str, PasswordEntry] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        user, colon, encoded = line.rstrip().partition(":")
        cost = _cost(encoded)
        why = None
        if not colon:
            why = "it takes user:hash"
        elif (user_fault := _user_fault(user)) is not None:
            why = f"the user name {user!r} will not do: {user_fault}"
        elif user in entries:
            why = f"{user!r} is on line {entries[user].line} already"
        elif cost is None:
            why = "what follows the colon is no Argon2id hash"
        if why is not None or cost is None:
            raise ConfigError(
                f"{source}:{number}: {why}.",
                hint=f"`dovetail passwd {source} USER` writes such lines.",
            )
        entries[user] = PasswordEntry(number, encoded, cost)
    return entries


def _user_fault(user: str) -> str | None:
    why = None
    if not user:
        why = "it is empty"
    elif ":" in user:
        why = "':' ends a user name in the file"
    elif user.startswith("#"):
        why = "a line that begins with '#' is a comment"
    elif user != user.strip():
        why = "it begins or ends with a space"
    elif any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in user):
        why = "it holds a control character"
    elif len(user.encode()) > PASSWORD_BYTES_MAX:
        why = f"it has more than {PASSWORD_BYTES_MAX:,} bytes"
    return why


def _cost(encoded: str) -> HashCost | None:
    """Return the cost of verifying a hash, or None if Argon2 would not accept it."""
    found = _HASH.fullmatch(encoded)
    if found is None:
        return None
    cost = HashCost(int(found[1]), int(found[2]), int(found[3]))
    salt, digest = _decoded(found[4]), _decoded(found[5])
    good = (
        cost.rounds >= 1
        and cost.lanes >= 1
        and 8 * cost.lanes <= cost.memory_kib <= HASH_MEMORY_KIB_MAX
        and len(salt) >= 8
        and len(digest) >= 16
    )
    return cost if good else None


def _decoded(text: str) -> bytes:
    """Decode Base64 without padding. Return nothing if it is invalid for Argon2.

    Argon2 also refuses stray bits in the last character.
    """
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        return b""
    return data if _encoded(data) == text else b""


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")


def _most_common_cost(entries: dict[str, PasswordEntry]) -> HashCost:
    costs = Counter(entry.cost for entry in entries.values())
    own = HashCost(HASH_MEMORY_KIB, HASH_ROUNDS, HASH_LANES)
    return costs.most_common(1)[0][0] if costs else own


def _decoy(cost: HashCost) -> str:
    """Return a hash that no password has. Unknown users are verified against it, in equal time."""
    memory, rounds, lanes = cost
    salt, digest = _encoded(secrets.token_bytes(16)), _encoded(secrets.token_bytes(32))
    return f"$argon2id$v=19$m={memory},t={rounds},p={lanes}${salt}${digest}"


def _matches(encoded: str, password: bytes) -> bool:
    try:
        return _hasher.verify(encoded, password)
    except VerificationError:  # also if the memory for the hash is lacking
        return False


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise ConfigError(f"cannot read the password file {path}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text ({error.reason}).") from None


def _rewrite(
    path: Path,
    change: Callable[[list[str], dict[str, PasswordEntry]], list[str]],
    *,
    must_exist: bool,
) -> None:
    """Replace the file with the lines that `change` returns: the whole file or nothing of it."""
    path = path.resolve()  # replace the target of a symbolic link, not the link
    try:
        with _locked(path.parent):
            text = _read(path) if must_exist or path.exists() else ""
            lines = text.removesuffix("\n").split("\n") if text else []
            _replace(path, "".join(f"{line}\n" for line in change(lines, parse(text, str(path)))))
    except OSError as error:
        raise ConfigError(f"cannot write the password file {path}: {error.strerror}.") from None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder, so that two simultaneous changes are both kept."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, text: str) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _copy_ownership(path, file.fileno())
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _copy_ownership(path: Path, descriptor: int) -> None:
    """Give the new file the owner, the group and the group's read permission of the old one.

    So a service that reads the file as its owner or group still can. Others never can. A first file
    is readable only for its owner.
    """
    if not path.exists():
        return
    old, new = path.stat(), os.fstat(descriptor)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, 0o600 | stat.S_IMODE(old.st_mode) & 0o040)
