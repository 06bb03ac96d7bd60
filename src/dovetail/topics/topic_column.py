"""A column of topics or filters: all their bytes in one array, and where each begins.

Kernels take topics in this layout. An Arrow string column has the same, so a batch from Spark is
searched without a copy. Nothing here imports Arrow: an array brings its buffers along.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dovetail.errors import ConfigError

_OFFSET_TYPES = {
    "string": np.int32,
    "binary": np.int32,
    "large_string": np.int64,
    "large_binary": np.int64,
}


class ArrowArray(Protocol):
    """The part of `pyarrow.Array` that a column needs."""

    @property
    def type(self) -> Any: ...  # noqa: ANN401
    @property
    def offset(self) -> int: ...
    @property
    def null_count(self) -> int: ...
    def buffers(self) -> list[Any]: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True, eq=False)
class TopicColumn:
    """Row i is `data[offsets[i]:offsets[i + 1]]`. Both arrays are read-only."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        # One kind of array, so that each kernel is compiled once.
        for field in ("data", "offsets"):
            view = getattr(self, field).view()
            view.flags.writeable = False
            object.__setattr__(self, field, view)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> bytes:
        if not 0 <= row < len(self):
            raise IndexError(row)
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        return (self[row] for row in range(len(self)))

    @classmethod
    def of(cls, texts: Iterable[str | bytes]) -> "TopicColumn":
        """Make a column of texts. The caller checks texts from outside (names.py)."""
        encoded = [text.encode() if isinstance(text, str) else text for text in texts]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    @classmethod
    def of_arrow(cls, array: ArrowArray) -> "TopicColumn":
        """Make a column of an Arrow array without nulls; the text is not copied."""
        offset_type = _OFFSET_TYPES.get(str(array.type))
        if offset_type is None:
            raise ConfigError(f"topics must be a column of strings or binaries, not {array.type}")
        if array.null_count:
            raise ConfigError(f"{array.null_count:,} of {len(array):,} topics are null")
        if not len(array):
            return cls.of(())
        _, offsets, data = array.buffers()
        window = np.frombuffer(offsets, offset_type)[array.offset : array.offset + len(array) + 1]
        text = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        return cls(text, window.astype(np.int64))
