"""A partition on broker 1 of three, and the brokers that are alive."""

from __future__ import annotations

import pytest

from anabranch.broker.replication.partition import Partition, ReplicaRules
from tests.broker.replication.partitions import LAG_MS, Registry, hosted


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def partition(registry: Registry) -> Partition:
    return hosted(ReplicaRules(1, LAG_MS, registry), min_insync_replicas=2)
