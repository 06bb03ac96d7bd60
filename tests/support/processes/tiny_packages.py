"""A registry for pip with packages of a few bytes, so that a set-up takes a second.

Locks name the packages with their hashes, as real ones do. A package with a FIFO as its `gate` is
built from source, and the build waits until a test opens the gate.
"""

import base64
import hashlib
import io
import os
import tarfile
import zipfile
from pathlib import Path

_BACKEND = """\
import os, shutil
from pathlib import Path

def build_wheel(folder, config_settings=None, metadata_directory=None):
    with open(GATE) as gate:
        gate.read()
    (wheel,) = Path(__file__).parent.glob("*.whl")
    shutil.copy(wheel, folder)
    return wheel.name
"""
_PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


class Registry:
    """A folder of packages, and an environment in which pip knows no other registry."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.environment = {"PIP_FIND_LINKS": folder.as_uri(), "PIP_NO_INDEX": "1"}

    def add(
        self, name: str, version: str = "1", *, code: str = "", gate: Path | None = None
    ) -> str:
        """Add a package with a module of the same name, and return its entry in a lock."""
        wheel = f"{name}-{version}-py3-none-any.whl"
        content = _wheel(name, version, code)
        if gate is None:
            (self.folder / wheel).write_bytes(content)
        else:
            os.mkfifo(gate)
            content = _source(f"{name}-{version}", wheel, content, gate)
            (self.folder / f"{name}-{version}.tar.gz").write_bytes(content)
        return f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(content).hexdigest()}\n"


def _wheel(name: str, version: str, code: str) -> bytes:
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},{_digest(text)},{len(text)}\n" for path, text in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return buffer.getvalue()


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def _source(folder: str, wheel: str, content: bytes, gate: Path) -> bytes:
    backend = f"GATE = {str(gate)!r}\n{_BACKEND}".encode()
    files = {"pyproject.toml": _PROJECT.encode(), "backend.py": backend, wheel: content}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
