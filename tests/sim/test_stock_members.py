"""Stock consumers of a KIP-848 group in the swarm: their coordinator keeps the order of keys for them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from anabranch.broker.coordinators.gates.gated_topic import GatedTopic
from tests.sim import stock_members
from tests.sim.resizer import growth
from tests.sim.swarm import SwarmSchedule

SEEDS = range(107, 127)
"""The first one caught the planted bug last."""


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock_members, "LIKELIHOOD", 1.0)


def growing() -> Iterator[SwarmSchedule]:
    """Schedules in which the topic only grows."""
    for seed in SEEDS:
        schedule = SwarmSchedule(seed)
        if schedule.stock_members is not None and schedule.stock_members.keeps_order:
            yield schedule


def test_growth_only_goes_up() -> None:
    for seed in range(20):
        first, steps = growth(random.Random(seed), 3)
        counts = [first, *(one.count for one in steps)]
        assert counts == sorted(set(counts)) and not any(one.for_removal for one in steps)


def test_stock_members_of_growing_topic_receive_keys_in_order() -> None:
    schedule = next(growing())
    assert schedule.run().violations == []
    assert schedule.stock_members is not None and schedule.stock_members.history.deliveries
    assert {"stock"} < schedule.protocols


@pytest.mark.costly
def test_coordinator_that_withholds_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GatedTopic, "withheld", lambda topic, committed: {})
    found = (line for schedule in growing() for line in schedule.run().violations)
    assert next(found, "").startswith("B1 key-order: stock-members")
