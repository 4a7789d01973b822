"""Records that wait for deliveries, and deliveries that wait for records."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np
import pytest

from anabranch.spark_jobs import columns
from anabranch.spark_jobs.pending import HANDED_FIELDS, Pending, Stored

Row = tuple[int, int, int]
"""Partition, offset, fingerprint."""
ROWS: list[Row] = [(partition, offset, 100 * partition + offset) for partition in range(2) for offset in range(6)]


def store(pending: Pending, rows: Sequence[Row]) -> None:
    partition, offset, fingerprint = np.array(rows, np.int64).T
    blank = np.zeros(len(rows), np.int64)
    pending.store(Stored(partition, offset, blank, blank, fingerprint.astype(np.uint64), [b"k"] * len(rows)))


def hand(pending: Pending, rows: Sequence[Row], name: int) -> list[tuple[int, int]]:
    """(offset, stored fingerprint) of those that differ."""
    values = {field: np.zeros(len(rows), np.int64) for field in HANDED_FIELDS if field != "at"}
    partition, offset, fingerprint = np.array(rows, np.int64).T
    values |= {"partition": partition, "offset": offset, "fingerprint": fingerprint.astype(np.uint64)}
    pending.hand({**values, "name": np.full(len(rows), name)}, [b"k"] * len(rows))
    return compared(pending)


def compared(pending: Pending) -> list[tuple[int, int]]:
    offsets = pending.handed.columns
    return [(int(offsets["offset"][row]), fingerprint) for row, fingerprint in pending.compare()]


def packed(pending: Pending) -> Pending:
    return Pending.of(*columns.unpack(columns.pack(pending.columns(), pending.small())))


def test_record_delivered_to_every_group_is_no_longer_pending() -> None:
    pending = Pending()
    store(pending, ROWS)
    assert hand(pending, ROWS[:4], 0) == []
    assert hand(pending, ROWS[2:6], 1) == []
    pending = packed(pending)
    assert [(one.partition, one.offset) for one in pending.undelivered_records(0)] == [row[:2] for row in ROWS[4:]]
    rest = [(one.partition, one.offset) for one in pending.undelivered_records(1)]
    assert rest == [row[:2] for row in ROWS[6:]], "what everybody had got before a group came is not kept for it"
    assert len(pending.stored) == len(ROWS) - 4
    assert len(pending.undelivered_records(None)) == len(pending.stored), "a group that got nothing"
    for name in (0, 1, None):
        assert pending.waiting(name) == len(pending.undelivered_records(name))


def test_wrong_payload_is_reported_once_in_either_order() -> None:
    for stored_first in (True, False):
        pending = Pending()
        if stored_first:
            store(pending, ROWS)
        wrong = hand(pending, [(0, 3, 4711), (0, 4, 4)], 0)
        pending = packed(pending)
        if not stored_first:
            assert wrong == []
            store(pending, ROWS)
            wrong = compared(pending)
        assert wrong == [(3, 3)]
        assert hand(pending, [(0, 3, 4711)], 0) == [], "a repetition tells nothing new"
        assert len(pending.handed) == 0


@pytest.mark.parametrize("seed", range(10))
def test_pending_records_do_not_depend_on_order_of_arrival(seed: int) -> None:
    """Portions of records in partition order, and of repeated deliveries in any order."""
    rng = random.Random(seed)
    pending, found = Pending(), []
    by_partition = [list(group) for _, group in itertools.groupby(ROWS, key=lambda row: row[0])]
    handed = [(row[0], row[1], 4711 if row[1] == 2 else row[2]) for row in ROWS if row[1] != 5]
    handed += rng.sample(handed, 4)
    rng.shuffle(handed)
    while handed or any(by_partition):
        portion = rng.choice([*by_partition, handed])
        taken = [portion.pop(0) for _ in range(min(len(portion), rng.randint(1, 3)))]
        if not taken:
            continue
        if portion is handed:
            found += hand(pending, taken, 0)
        else:
            store(pending, taken)
            found += compared(pending)
        pending = packed(pending)
    assert sorted(found) == [(2, 2), (2, 102)]
    assert [(one.partition, one.offset) for one in pending.undelivered_records(0)] == [(0, 5), (1, 5)]
    assert len(pending.handed) == 0
