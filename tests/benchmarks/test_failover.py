"""The failover benchmark runs on small input."""

from __future__ import annotations

import pytest

from benchmarks import failover


@pytest.mark.zookeeper
def test_small_cluster_fails_over() -> None:
    figures = failover.measure(sizes=(12,), rounds=1)
    assert [(one.what, one.met) for one in figures] == [("controller failover, 12 partitions", None)]
