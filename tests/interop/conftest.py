"""Other clients leave sockets behind for the garbage collector; that is not what these tests are about."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def collect_what_other_clients_leave() -> Iterator[None]:
    """Collect it here, quietly, rather than as somebody else's failure."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
