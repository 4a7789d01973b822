"""The store of a global table: rows with positions, and when it starts over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.streams.changelog_bounds import ChangelogBounds
from anabranch.clients.streams.global_store import GlobalStore, has_returned
from anabranch.clients.streams.task_disk import TaskDisk
from anabranch.clients.streams.topology import Topology
from anabranch.protocol.lineage import Lineage
from tests.cases import for_each

FIRST, OTHER = b"1" * 16, b"2" * 16


def opened(directory: Path) -> GlobalStore:
    topology = Topology()
    topology.stream("in")
    topology.global_table("rows", store="s")
    (part,) = topology.build("app").global_tables
    return GlobalStore(part, TaskDisk(directory, part.stores))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[GlobalStore]:
    made = opened(tmp_path)
    made.note_topic(FIRST)
    yield made
    made.close()


def record(key: bytes | None, value: bytes | None, partition: int = 0) -> ConsumerRecord:
    return ConsumerRecord("rows", partition, 0, 7, key, value, (), -1)


def test_the_last_value_of_a_key_stays_and_none_deletes_it(store: GlobalStore) -> None:
    store.apply([record(b"a", b"1"), record(None, b"2"), record(b"b", b"3"), record(b"a", b"4")], {0: 4}, 1)
    store.apply([record(b"b", None)], {0: 5}, 1)
    assert store.rows.get_timestamped(b"a") == (b"4", 7)
    assert list(store.rows.items()) == [(b"a", b"4")]


def test_rows_and_positions_outlive_the_process(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.note_topic(FIRST)
    store.apply([record(b"a", b"1")], {0: 1, 3: 0}, 2)
    store.apply([], {3: 9}, 4)
    store.forget_others([0, 3])
    store.disk.close()
    again = opened(tmp_path)
    assert (again.positions, again.generation, again.rows.topic_id) == ({0: 1, 3: 9}, 4, FIRST)
    assert again.rows.get(b"a") == b"1"
    again.forget_others([0])
    again.close()
    once_more = opened(tmp_path)
    assert once_more.positions == {0: 1}, "partition 3 was removed"
    once_more.start_over()
    once_more.close()
    empty = opened(tmp_path)
    assert (empty.positions, empty.generation, empty.rows.topic_id) == ({}, -1, b"")
    assert list(empty.rows.items()) == []
    empty.close()


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        (ChangelogBounds(FIRST, 0, 5), ""),
        (ChangelogBounds(OTHER, 0, 5), "rows-0: the topic was deleted and created again"),
        (ChangelogBounds(FIRST, 0, 3), "rows-0: the topic ends at offset 3, before the position 4"),
        (ChangelogBounds(FIRST, 5, 6), "rows-0: records from offset 4 to 4 were deleted from the topic"),
    ],
    ids=["same", "recreated", "shorter", "truncated"],
)
def test_store_starts_over_by_the_rules_of_changelogs(store: GlobalStore, bounds: ChangelogBounds, reason: str) -> None:
    store.apply([record(b"a", b"1")], {0: 4}, 1)
    assert (store.reset_reason({0: bounds}, None) or "") == reason


def test_new_partition_whose_first_records_were_deleted_is_no_reason(store: GlobalStore) -> None:
    store.apply([record(b"a", b"1")], {0: 4}, 1)
    assert store.reset_reason({1: ChangelogBounds(FIRST, 8, 9)}, Lineage(1, [(1, 1), (2, 2)])) is None


def test_store_starts_over_if_a_partition_that_it_has_read_was_merged_and_split_meanwhile(store: GlobalStore) -> None:
    store.apply([record(b"a", b"1")], {0: 4, 1: 2}, 2)
    bounds = {0: ChangelogBounds(FIRST, 0, 5), 1: ChangelogBounds(FIRST, 0, 5)}
    assert store.reset_reason(bounds, Lineage(1, [(1, 1), (2, 2), (3, 3)])) is None
    reason = store.reset_reason(bounds, Lineage(1, [(1, 1), (2, 2), (3, 1), (4, 2)]))
    assert reason == "rows-1 was merged away and split off again"


@for_each(
    [
        ([(1, 2)], 1, 1, False),
        ([(1, 2), (2, 4)], 1, 1, False),
        ([(1, 2), (2, 1)], 1, 1, False),
        ([(1, 2), (2, 1), (3, 2)], 1, 1, True),
        ([(1, 2), (2, 1), (3, 2)], 2, 1, True),  # it was retiring then
        ([(1, 2), (2, 1), (3, 2)], 3, 1, False),
        ([(1, 2), (2, 1), (3, 2)], 1, 0, False),
        ([(1, 2), (2, 1), (3, 2)], -1, 1, True),
    ]
)
def test_partition_has_returned_if_the_topic_was_without_it(
    history: list[tuple[int, int]], since: int, partition: int, returned: bool
) -> None:
    assert has_returned(Lineage(1, history), partition, since) is returned
