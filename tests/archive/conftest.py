"""The tests of the archive need pyarrow, as the archive does."""

import pytest

pytest.importorskip("pyarrow")
