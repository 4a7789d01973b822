"""Plans and resets, compared with the lineage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.clients.resize_plan import family, plan_resize, rewind_lineage
from anabranch.protocol import linear_hashing
from anabranch.protocol.lineage import KeyEpoch, Lineage


@given(st.integers(1, 12), st.integers(1, 40), st.integers(1, 40))
def test_resize_plan_matches_moved_keys(base: int, before: int, after: int) -> None:
    if before == after:
        return
    lineage = Lineage(base, [(0, before)])
    plan = plan_resize(lineage, after)
    hashes = range(base * 64)
    moved = sum(linear_hashing.address(one, base, before) != linear_hashing.address(one, base, after) for one in hashes)
    assert plan.moved_share == pytest.approx(moved / len(hashes))
    assert set(plan.fenced) == {p for p in linear_hashing.affected_partitions(base, before, after) if p < before}
    for one in hashes:
        source, target = linear_hashing.address(one, base, before), linear_hashing.address(one, base, after)
        if source != target:
            assert source in plan.waits[target]


def test_resize_to_zero_partitions_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        plan_resize(Lineage(3, [(0, 6)]), 0)


LINEAGE = Lineage(1, [(0, 2), (1, 4), (2, 3)])
ENDS = {KeyEpoch(0, 0): 10, KeyEpoch(1, 0): 8, KeyEpoch(1, 1): 12, KeyEpoch(3, 1): 5}
READ = {0: 20, 1: 20, 2: 9, 3: 5}


def test_rewind_includes_partitions_with_later_records_of_same_keys() -> None:
    assert rewind_lineage(LINEAGE, ENDS, READ, 1, 4) == {1: 4, 3: 0}
    assert rewind_lineage(LINEAGE, ENDS, READ, 0, 0) == {0: 0, 2: 0}


def test_rewind_behind_split_leaves_child_unchanged() -> None:
    assert rewind_lineage(LINEAGE, ENDS, READ, 1, 9) == {1: 9}


def test_rewind_of_retiring_partition_rewinds_merge_target_to_merge() -> None:
    assert rewind_lineage(LINEAGE, ENDS, READ, 3, 2) == {3: 2, 1: 12}


def test_rewind_moves_no_offset_forward() -> None:
    assert rewind_lineage(LINEAGE, ENDS, {1: 11, 3: 3}, 3, 2) == {3: 2}
    assert rewind_lineage(LINEAGE, ENDS, {1: 20}, 1, 4) == {1: 4}


def test_family_contains_all_partitions_that_shared_keys() -> None:
    lineage = Lineage(1, [(0, 4), (1, 8), (2, 6)])
    assert family(lineage, 6) == {2, 6}
    assert family(Lineage(1, [(0, 2), (1, 4), (2, 1)]), 3) == {0, 1, 2, 3}
