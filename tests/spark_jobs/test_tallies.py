"""Counts beside the checks, on generated deliveries, without Spark."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.spark_jobs import tallies
from anabranch.spark_jobs.tallies import STORED, Handed, Ledger, Tallies

NAMES = [("readers", "flights"), ("billing", "flights")]
Row = tuple[int, int, int, int, int]
"""Name, partition, generation, time, count."""


def counted(rows: list[Row]) -> Tallies:
    columns = dict(zip(("name", "partition", "generation", "time_ms", "count"), np.array(rows).T, strict=True))
    made = Tallies()
    made.deliver(NAMES, columns)
    return made


def some_rows(rng: random.Random, count: int) -> list[Row]:
    return [
        (rng.randrange(2), rng.randrange(4), rng.randrange(3), rng.randrange(90_000), rng.randrange(1, 5))
        for _ in range(count)
    ]


def test_deliveries_are_counted_by_key_epoch_and_over_time() -> None:
    found = counted([(0, 2, 0, 1000, 3), (0, 2, 0, 1400, 1), (0, 2, 1, 1600, 2), (1, 2, 0, 7000, 5)])
    assert found.key_epochs == {
        ("readers", "flights", KeyEpoch(2, 0)): Handed(4, 1000, 1400),
        ("readers", "flights", KeyEpoch(2, 1)): Handed(2, 1600, 1600),
        ("billing", "flights", KeyEpoch(2, 0)): Handed(5, 7000, 7000),
    }
    assert found.series("readers", "flights") == (500, {2: [(1000, 4), (1500, 2)]})
    assert found.audiences() == [("billing", "flights"), ("readers", "flights")]


def test_row_without_count_is_one_delivery() -> None:
    found = Tallies()
    ones = {"name": np.zeros(2, np.int64), "partition": np.zeros(2, np.int32), "generation": np.array([3, 3], np.int32)}
    found.deliver(NAMES, {**ones, "time_ms": np.array([5, 9])})
    assert found.key_epochs == {("readers", "flights", KeyEpoch(0, 3)): Handed(2, 5, 9)}


def test_empty_bins_are_included_for_every_partition() -> None:
    found = counted([(0, 0, 0, 0, 1), (0, 0, 0, 1600, 1), (0, 1, 0, 700, 1)])
    assert found.series("readers", "flights").partitions == {
        0: [(0, 1), (500, 0), (1000, 0), (1500, 1)],
        1: [(0, 0), (500, 1), (1000, 0), (1500, 0)],
    }


@pytest.mark.parametrize("seed", range(5))
def test_sum_of_parts_equals_the_whole(seed: int) -> None:
    rng = random.Random(seed)
    rows = some_rows(rng, 300)
    whole, parts = counted(rows), Tallies()
    while rows:
        cut = rng.randrange(1, 60)
        part, rows = counted(rows[:cut]), rows[cut:]
        parts.add(Tallies.of_json(json.loads(json.dumps(part.as_json()))))
    assert parts.as_json() == whole.as_json()


def test_bins_widen_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallies, "BINS_MAX", 10)
    early, late = counted([(0, 0, 0, 0, 1), (0, 0, 0, 600, 2)]), counted([(0, 0, 0, 20_000, 3)])
    early.add(late)
    width, partitions = early.series("readers", "flights")
    assert width == 4000
    assert partitions[0] == [(0, 3), (4000, 0), (8000, 0), (12000, 0), (16000, 0), (20000, 3)]
    late.add(early)
    assert sum(count for _, count in late.series("readers", "flights").partitions[0]) == 9


def test_partitions_are_shown_in_bins_of_one_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallies, "BINS_MAX", 10)
    found = counted([(0, 0, 0, 0, 1), (0, 0, 0, 20_000, 1), (0, 1, 0, 600, 5)])
    found.store("flights", np.array([0]), np.array([10_000_000]))
    width, partitions = found.series("readers", "flights")
    assert (width, partitions[1][0]) == (4000, (0, 5))
    assert found.series(STORED, "flights").bin_ms == 500, "what is stored may be dated as its producer likes"
    assert found.series("readers", "absent") == (500, {})


def test_partitions_whose_times_are_far_apart_have_few_bins_together() -> None:
    """A member's clock may stand at 1970, a producer may set any timestamp, and an audit may last for months."""
    found = counted([(0, 0, 0, 700, 2), (0, 1, 0, 700 + 4000 * 500 * tallies.BINS_MAX, 5)])
    width, partitions = found.series("readers", "flights")
    assert width == 4096 * 500
    assert [sum(count for _, count in bins) for bins in partitions.values()] == [2, 5]
    assert len(partitions[0]) == len(partitions[1]) <= tallies.BINS_MAX


def test_stored_records_are_counted_separately() -> None:
    found = Tallies()
    found.store("flights", np.array([0, 0, 1]), np.array([100, 200, 900]))
    assert found.series(STORED, "flights").partitions == {0: [(0, 2), (500, 0)], 1: [(0, 0), (500, 1)]}
    assert found.audiences() == []


def test_repeated_batch_counts_once() -> None:
    ledger = Ledger()
    ledger.take(0, [counted([(0, 0, 0, 0, 1)]), counted([(0, 1, 0, 0, 1)])])
    ledger.take(1, [counted([(0, 0, 0, 500, 7)])])
    before = ledger.total().as_json()
    again = Ledger.of_json(json.loads(json.dumps(ledger.as_json())))
    again.take(1, [counted([(0, 0, 0, 500, 7)])])
    assert again.total().as_json() == before
    again.take(2, [counted([(0, 0, 0, 500, 7)])])
    assert again.total().key_epochs["readers", "flights", KeyEpoch(0, 0)].records == 15


def test_hand_offs_of_a_split_and_of_a_merge() -> None:
    lineage = Lineage(1, [(0, 2), (1, 3), (2, 2)])  # partition 2 splits off from 0, and goes back to it
    found = counted(
        [
            *((0, 0, 0, 1000, 5), (0, 0, 0, 1900, 5), (0, 1, 0, 9000, 1)),
            *((0, 0, 1, 2000, 5), (0, 2, 1, 2050, 1), (0, 2, 1, 2500, 1), (0, 0, 1, 2700, 1)),
            *((0, 0, 2, 2860, 1), (0, 0, 2, 2900, 1)),
        ]
    )
    split, merge = found.hand_offs("readers", "flights", lineage)
    assert (split.kind, split.sources, split.target, split.took_ms) == ("split", (KeyEpoch(0, 0),), KeyEpoch(2, 1), 150)
    assert (merge.kind, merge.sources, merge.target, merge.took_ms) == ("merge", (KeyEpoch(2, 1),), KeyEpoch(0, 2), 360)
    assert found.hand_offs("billing", "flights", lineage) == []


def test_hand_off_skips_key_epochs_without_deliveries() -> None:
    lineage = Lineage(1, [(0, 1), (1, 2), (2, 4)])  # 1 splits off from 0, then 3 from 1
    found = counted([(0, 0, 0, 1000, 5), (0, 3, 2, 1300, 1)])
    (only,) = found.hand_offs("readers", "flights", lineage)
    assert (only.sources, only.took_ms) == ((KeyEpoch(0, 0),), 300)


def test_hand_off_of_overtaking_delivery_is_negative() -> None:
    lineage = Lineage(1, [(0, 1), (1, 2)])
    (only,) = counted([(0, 0, 0, 5000, 1), (0, 1, 1, 4000, 1)]).hand_offs("readers", "flights", lineage)
    assert only.took_ms == -1000
