"""What a test holds for the length of a `with`, and closes at its end, whatever happened in it."""

from types import TracebackType
from typing import Self


class Held:
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
