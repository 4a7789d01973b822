"""Stores have what their changelogs have: after restoring, commits, aborts, and keys that come from a neighbour."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.clients.streams.changelog import MARK_HEADERS, Marks, arrived_mark
from anabranch.clients.streams.processor_state_manager import ProcessorStateManager
from anabranch.clients.streams.task_disk import TaskDisk
from tests.clients.streams.changelog_records import logged, row


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[ProcessorStateManager]:
    made = make(tmp_path)
    yield made
    made.disk.close()


def make(directory: Path) -> ProcessorStateManager:
    return ProcessorStateManager(("counts",), {"counts"}, TaskDisk(directory, ("counts",)))


def test_stores_are_restored_at_their_targets_and_never_before_these_are_known(stores: ProcessorStateManager) -> None:
    stores.restore("counts", [logged(0, 90, b"k", b"4")], 1)
    assert not stores.restored
    stores.aim({"counts": 2})
    assert not stores.restored
    assert stores.restore("counts", [logged(1, 91, b"k", None)], 2) == 1
    assert (stores.restored, stores.checkpoint_sum, stores.entries) == (True, 2, 0)


def test_after_abort_of_first_transaction_stores_are_restored_at_once(stores: ProcessorStateManager) -> None:
    stores.aim({"counts": 0})
    stores.stores["counts"].put(b"a", b"1")
    assert stores.changed
    stores.on_aborted()
    assert (stores.changed, stores.restored) == (False, False)
    stores.aim({"counts": 0})
    assert stores.restored, "the changelog is empty: there is no record to read"


def test_store_that_is_known_to_be_complete_is_restored_after_an_abort(stores: ProcessorStateManager) -> None:
    stores.aim({"counts": 0})
    stores.on_aborted()
    stores.trust()
    assert stores.restored


def test_commit_below_the_checkpoint_is_to_another_changelog(stores: ProcessorStateManager) -> None:
    stores.check({"counts": b"one"})
    stores.stores["counts"].put(b"a", b"1")
    stores.on_committed({"counts": [0]}, transactional=True)
    assert not (stores.unchecked or stores.stores["counts"].doubted)
    stores.stores["counts"].put(b"a", b"2")
    stores.on_committed({"counts": [0]}, transactional=True)
    assert stores.unchecked and stores.stores["counts"].doubted


def test_keys_from_neighbour_are_copied_only_without_records_before_them(stores: ProcessorStateManager) -> None:
    mark = dict([arrived_mark(1, 2)])
    assert not stores.take_over("counts", {b"a": row(b"7", 5)}, mark, [5, 6])
    assert not stores.take_over("counts", {b"a": row(b"7", 5)}, mark, [0, 2])
    assert stores.marks() == [Marks({}, -1)]
    stores.restore("counts", [], 0)  # it has been looked at: nothing stands there
    assert stores.take_over("counts", {b"a": row(b"7", 5)}, mark, [0, 1])
    assert stores.marks() == [Marks({1: 2}, -1)]
    assert (stores.stores["counts"].get(b"a"), stores.disk.checkpoint("counts")) == (b"7", 2)


def test_copy_equals_changelog_including_marks(tmp_path: Path) -> None:
    copy = make(tmp_path)
    key, value = arrived_mark(1, 2)
    copy.restore(
        "counts", [logged(0, 90, b"a", b"1"), logged(1, 0, key, value, MARK_HEADERS), logged(2, 92, b"a", b"3")], 4
    )
    copy.disk.close()
    again = make(tmp_path)
    assert again.marks() == [Marks({1: 2}, -1)]
    assert dict(again.stores["counts"].items()) == {b"a": b"3"}
    assert again.checkpoint_sum == 4
    again.start_over("counts", 3)
    assert (again.marks(), dict(again.stores["counts"].items())) == ([Marks({}, -1)], {})
    assert again.disk.checkpoint("counts") == again.stores["counts"].checkpoint.offset == 3
    again.disk.close()
