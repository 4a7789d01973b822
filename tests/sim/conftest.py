"""A simulated run ends by the work that it does (`loop.CALLBACKS_MAX`), not by the seconds that this takes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor

import pytest

from tests.sim.processes import pool


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take away the limit in seconds that all other tests have."""
    for item in items:
        if item.nodeid.startswith("tests/sim/"):
            item.add_marker(pytest.mark.timeout(0))


@pytest.fixture(scope="package")
def workers() -> Iterator[Executor]:
    """Two processes for the schedules of all tests here: each has to compile its codecs once."""
    with pool(2) as executor:
        yield executor
