"""Key states as columns: lookup by hash, idle keys, and the state store."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from anabranch.spark_jobs import columns
from anabranch.spark_jobs.lines import PLACE, SKIPPED, HashCollision, Lines, hashes, line_hash

KEYS = [b"a", b"", None, b"bb", b"a"]
SALTS = [1, 1, 1, 1, 2]


def made(times: list[int]) -> tuple[Lines, np.ndarray, np.ndarray]:
    first, second = hashes(pa.array(KEYS, pa.binary()), np.array(SALTS, np.uint64))
    lines = Lines()
    values = {name: np.arange(len(KEYS)) + 10 for name in PLACE} | {
        "time_ms": np.array(times),
        "heard_ms": np.array(times),
    }
    lines.add(first, second, values | {"name": np.zeros(5), "producer": np.full(5, 7, np.uint64)}, KEYS)
    return lines, first, second


def test_lines_are_found_by_key_and_salt() -> None:
    lines, first, second = made([0] * 5)
    assert len(set(first.tolist())) == 5, "an empty key is not a null one, and a salt makes another line"
    rows = lines.find(first, second)
    assert [lines.key(row) for row in rows] == KEYS
    assert lines.fields["newest"][rows].tolist() == [10, 11, 12, 13, 14]
    assert lines.find(*line_hash(b"bb", 1)).tolist() == [rows[3]]
    assert lines.find(*line_hash(b"c", 1)).tolist() == [-1]


def test_lines_survive_the_state_store() -> None:
    lines, first, second = made([0] * 5)
    lines.former.put(int(first[1]), [(3, 30), (1, 10)])
    lines.skipped.put(int(first[2]), [(1, 2, 0, *range(12))])
    found, small = columns.unpack(columns.pack(lines.columns(), {"more": [1]}))
    again = Lines.of(found)
    assert small == {"more": [1]}
    assert columns.pack(again.columns(), None) == columns.pack(lines.columns(), None)
    assert again.former.get(int(first[1])) == [(3, 30), (1, 10)]
    assert [again.key(row) for row in again.find(first, second)] == KEYS
    again.update(again.find(first, second)[:1], {name: np.array([99]) for name in PLACE})
    assert again.fields["newest"][again.find(first, second)].tolist() == [99, 11, 12, 13, 14]


def test_idle_lines_are_compacted_and_restored() -> None:
    lines, first, second = made([5, 500, 5, 500, 5])
    lines.skipped.put(int(first[2]), [(1, 2, 0, *range(12))])
    before = len(columns.pack(lines.columns(), None))
    lines.fall_quiet(100)
    assert len(lines) == 3, "one of the old ones still misses something"
    assert len(columns.pack(lines.columns(), None)) < before
    rows = lines.find(first[:2], second[:2])
    assert lines.fields["newest"][rows].tolist() == [10, 11]
    assert (lines.key(int(rows[0])), lines.key(int(rows[1]))) == (None, b"")
    assert lines.fields["sender"][rows[0]] == -1
    lines.name_again(rows[:1], np.array([0]), np.array([7], np.uint64), [b"a"])
    assert lines.key(int(rows[0])) == b"a"
    assert len(lines) == 4
    assert (lines.find(first, second) >= 0).all()


def test_senders_around_a_gap_are_remembered() -> None:
    lines, first, _ = made([0] * 5)
    by = dict.fromkeys(SKIPPED, 0) | {"sender": 4, "before_sender": 6}
    lines.skipped.put(int(first[2]), [tuple(by.values())])
    again = Lines.of(columns.unpack(columns.pack(lines.columns(), None))[0])
    assert {4, 6} <= set(again.senders().tolist())
    again.renumber_senders(np.append(np.arange(20)[::-1], -1))
    renumbered = by | {"sender": 15, "before_sender": 13}
    assert again.skipped.get(int(first[2])) == [tuple(renumbered.values())]


def test_hash_collision_ends_the_audit() -> None:
    lines, first, second = made([0] * 5)
    with pytest.raises(HashCollision):
        lines.find(first[:1], second[:1] + np.uint64(1))
