"""The archive's own tests need pyarrow, as it does."""

import pytest

pytest.importorskip("pyarrow")
