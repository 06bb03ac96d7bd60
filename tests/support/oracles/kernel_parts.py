"""Make inner kernels, which only compiled code can call, callable from tests."""

from collections.abc import Callable
from typing import Any

import numba

compiled: Callable[..., Any] = numba.njit


def callable_kernel(part: Callable[..., Any]) -> Callable[..., Any]:
    @compiled
    def call(*arguments: Any) -> Any:  # noqa: ANN401
        return part(*arguments)

    return call  # type: ignore[no-any-return]
