"""Data of a cluster in one process: from a snapshot, cleared, or in a directory.

The tests of `tests/anabranch/state` start brokers with it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.cluster.in_process_data import InProcessData
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.state.snapshot import InvalidSnapshot, NotInMemory, Snapshot

HELD = Snapshot("", {1: {}, 2: {}}, frozenset({2}))


@pytest.mark.parametrize(("every_broker", "down"), [(False, {1}), (True, set())])
def test_brokers_that_were_down_stay_down_unless_all_start(every_broker: bool, down: set[int]) -> None:
    data = InProcessData()
    data.hold(HELD, (1, 2), every_broker=every_broker)
    assert (data.down, set(data.files)) == (down, {1, 2})
    again = data.snapshot(frozenset({2}), 7)
    assert (again.node_ids, again.running, again.lead_ms) == ((1, 2), {2}, 7)


def test_snapshot_of_other_brokers_changes_nothing() -> None:
    data = InProcessData()
    before = data.zookeeper
    with pytest.raises(InvalidSnapshot, match=r"has brokers \(1, 2\); this cluster has \(1,\)"):
        data.hold(HELD, (1,))
    assert data.zookeeper is before and not data.files


def test_cleared_data_has_new_files() -> None:
    data = InProcessData()
    data.hold(HELD, (1, 2))
    before = data.zookeeper
    data.clear()
    assert data.zookeeper is not before and (data.files, data.down) == ({}, frozenset())
    settings = BrokerSettings(node_id=1)
    assert data.files_of(settings) is data.files_of(settings) is data.files[1]


def test_data_in_a_directory_has_no_snapshot(tmp_path: Path) -> None:
    data = InProcessData(tmp_path)
    with pytest.raises(NotInMemory):
        data.snapshot(frozenset(), 0)
    assert isinstance(data.zookeeper, MemoryZooKeeper)
    data.close()
