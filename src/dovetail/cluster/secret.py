"""The secret that the nodes of a cluster share: its file, and the key that is made of it.

The secret itself is never sent. Only proofs are made of it (`handshake.py`). An attacker with a
proof could guess secrets offline. So the key comes from scrypt, where every guess costs 16 MiB and
tens of milliseconds; a node pays that once, when it starts. The cluster's name is the salt: guesses
for one cluster are useless against another.
"""

import hashlib
import hmac
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from dovetail.cluster.limits import SECRET_BYTES_MAX, SECRET_BYTES_MIN
from dovetail.errors import ConfigError

_SALT = b"dovetail cluster "
_SCRYPT_COST = 1 << 14
_SCRYPT_BLOCKS = 8
_KEY_BYTES = 32
_SEED_BYTES = 8

_MAKE_ONE = "`(umask 077; openssl rand -hex 32 > FILE)` makes a good one."


def read_secret(path: Path | str) -> bytes:
    """Return the content of the file, without the line break at its end."""
    try:
        with Path(path).open("rb") as file:
            mode = Path(path).stat().st_mode
            content = file.read(SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"cannot read the cluster's secret {path}: {error.strerror}.", hint=_MAKE_ONE
        ) from None
    if mode & stat.S_IROTH:
        raise ConfigError(
            f"every user of this machine may read the cluster's secret {path}.",
            hint=f"`chmod o-rwx {path}` mends it.",
        )
    if len(content) > SECRET_BYTES_MAX:
        raise ConfigError(f"{path} has more than {SECRET_BYTES_MAX:,} bytes, and is no secret.")
    secret = content.rstrip(b"\r\n")
    check_secret(secret, str(path))
    return secret


def make_secret(path: Path) -> None:
    """Make a secret file, readable for its owner only, unless it exists. Make its folder, too."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Written under another name first, so that the file is never incomplete.
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{secrets.token_hex(_KEY_BYTES)}\n")
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(draft, path)
        finally:
            draft.unlink()
    except OSError as error:
        raise ConfigError(f"cannot make the cluster's secret {path}: {error.strerror}.") from None


def check_secret(secret: bytes, source: str) -> None:
    """Raise a ConfigError if the secret is too short."""
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(
            f"the cluster's secret in {source} has {len(secret)} bytes; "
            f"it takes {SECRET_BYTES_MIN} at least.",
            hint=_MAKE_ONE,
        )


def key_of(secret: bytes, cluster: str) -> bytes:
    """Return the key of the proofs in this cluster. Slow by design."""
    return hashlib.scrypt(
        secret,
        salt=_SALT + cluster.encode(),
        n=_SCRYPT_COST,
        r=_SCRYPT_BLOCKS,
        p=1,
        dklen=_KEY_BYTES,
    )


def seed_of(secret: bytes, cluster: str) -> int:
    """Return the seed of the hashes in sketches. It is sent, and reveals nothing of the key."""
    digest = hmac.digest(key_of(secret, cluster), b"seed of sketches", "sha256")
    return int.from_bytes(digest[:_SEED_BYTES], "big")
