"""A context manager that closes itself at the end of its `with` block."""

from types import TracebackType
from typing import Self


class ClosingContext:
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError
