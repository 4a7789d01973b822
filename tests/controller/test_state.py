"""The controller's state checks itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anabranch.controller.model import Partition, TopicPartition
from tests.controller.world import started

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(
    "change",
    [
        {"isr": ()},
        {"leader": 9},
        {"controller_epoch": 5},
        {"generation": 4},
        {"gen_start": ((0, 7),)},
        {"leader": -1},
    ],
)
def test_inconsistent_partition_state_fails_check(change: dict[str, Any]) -> None:
    _, term = started()
    term.state.check()
    known = term.state.partitions[T0]
    term.state.believe(T0, Partition(replace(known.state, **change), known.epoch))
    with pytest.raises(AssertionError):
        term.state.check()
    with pytest.raises(AssertionError):
        term.state.check_all()


def test_forget_topic_removes_all_its_state() -> None:
    _, term = started()
    state = term.state
    state.forget_topic("t")
    assert not (state.topics or state.names or state.partitions or state.phases or state.replica_phases)
    assert not state.adopted


def test_live_brokers_exclude_those_shutting_down() -> None:
    _, term = started()
    term.state.shutting_down.add(2)
    assert term.state.live == {1, 3}
    assert term.state.online_replicas(T0) == [1, 2], "it can still be told"
