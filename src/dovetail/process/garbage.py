"""The garbage collector while a service starts.

What imports make stays until the process ends. A collector that looks at it again and again takes
a tenth of a start, and finds nothing.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """For imports. What is there at the end of the block is not looked at again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
