"""A sample of the crash points of `python -m tests.power_loss`, and planted faults that they reveal."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.broker.storage import os_files
from anabranch.broker.storage.durability import Durability
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.log_directory import LogDirectory
from anabranch.clients.durable_files import replace_file, write_all
from anabranch.controller.zk.journal import JournaledTree
from tests.power_loss.campaign import JOURNAL, WORKLOADS, play


@pytest.mark.parametrize("workload", WORKLOADS)
def test_flushed_data_survives_a_power_failure_at_each_nth_operation(workload: str) -> None:
    outcome = play(workload, seed=7, every=23 if workload == "moves between directories" else 5)
    assert outcome.faults == ()
    assert len(set(outcome.states)) > 20


def nothing(*_: object, **__: object) -> tuple[()]:
    """Do nothing."""
    return ()


def replace_unflushed(path: str, content: bytes, *, flushed: bool) -> None:
    replace_file(path, content, flushed=False)


def append_unflushed(tree: JournaledTree, content: bytes) -> None:
    write_all(tree._file, content)


PLANTED: dict[str, tuple[Any, str, Any, str]] = {
    "names of segments are not flushed": (Durability, "_flush_directories", nothing, "appends, each flushed"),
    "a truncation does not flush names": (Durability, "flush_names", nothing, "truncations"),
    "indexes are not flushed": (Durability, "wrote", nothing, "clean stops and kills"),
    "small files are replaced unflushed": (os_files, "replace_file", replace_unflushed, "appends, each flushed"),
    "a log is removed before its name": (LogDirectory, "flush_names", nothing, "moves between directories"),
    "compaction does not wait for a flush": (Durability, "has_sealed_unflushed", False, "compaction"),
    "snapshots of producers are not flushed": (PartitionLog, "_is_flushed", False, "transactions"),
    "the journal of ZooKeeper is not flushed": (JournaledTree, "_append", append_unflushed, JOURNAL),
}


@pytest.mark.costly
@pytest.mark.parametrize("planted", PLANTED)
def test_planted_fault_is_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, instead, workload = PLANTED[planted]
    monkeypatch.setattr(owner, name, instead)
    assert any(play(workload, seed).faults for seed in range(10))
