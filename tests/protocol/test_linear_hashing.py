"""Properties of linear hashing that a resize relies on (analysis B1-B3), over all small cases and random large ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import linear_hashing as lh

bases = st.sampled_from([1, 3, 5, 7])
hashes = st.integers(0, 2**31 - 1)


@st.composite
def resizes(draw: st.DrawFn) -> tuple[int, int, int]:
    base = draw(bases)
    return base, draw(st.integers(base, 200)), draw(st.integers(base, 200))


@given(hashes, bases, st.integers(0, 7))
def test_equals_kafkas_placement_at_base_times_a_power_of_two(key_hash: int, base: int, doublings: int) -> None:
    count = base << doublings
    assert lh.address(key_hash, base, count) == key_hash % count


@given(hashes, st.integers(1, 96), st.integers(0, 100))
def test_the_odd_part_as_base_changes_nothing_at_or_above_the_initial_count(
    key_hash: int, initial: int, more: int
) -> None:
    count = initial + more
    assert lh.address(key_hash, lh.base_of(initial), count) == lh.address(key_hash, initial, count)


@given(hashes, resizes())
def test_a_key_moves_only_into_new_partitions_or_out_of_removed_ones(
    key_hash: int, resize: tuple[int, int, int]
) -> None:
    base, before, after = resize
    old, new = lh.address(key_hash, base, before), lh.address(key_hash, base, after)
    if old != new and before < after:
        assert new >= before and lh.ancestor(new, before, base) == old, "one parent"
    elif old != new:
        assert old >= after and lh.ancestor(old, after, base) == new, "one survivor"


@given(hashes, resizes())
def test_a_partition_holds_exactly_its_residue_class(key_hash: int, resize: tuple[int, int, int]) -> None:
    base, count, _ = resize
    holders = []
    for partition in range(count):
        held = lh.residue_class(partition, base, count)
        assert held is not None
        if key_hash % held[0] == held[1]:
            holders.append(partition)
    assert holders == [lh.address(key_hash, base, count)]


@given(resizes())
def test_only_affected_partitions_gain_or_lose_keys(resize: tuple[int, int, int]) -> None:
    base, before, after = resize
    period = lh.base_of(1) * base * 512
    changed = set()
    for key_hash in range(period):
        old, new = lh.address(key_hash, base, before), lh.address(key_hash, base, after)
        if old != new:
            changed |= {old, new}
    assert changed == set(lh.affected(base, before, after))


def test_one_more_partition_touches_one_parent_and_one_child() -> None:
    assert lh.affected(125, 1000, 1001) == [0, 1000]


@pytest.mark.parametrize(("count", "expected"), [(8, 1.0), (9, 1.125), (10, 1.25), (12, 1.5), (15, 1.875), (16, 1.0)])
def test_imbalance_is_a_saw_tooth_below_two(count: int, expected: float) -> None:
    assert lh.imbalance(1, count) == expected


@given(resizes())
def test_shares_add_up(resize: tuple[int, int, int]) -> None:
    base, before, after = resize
    assert sum(lh.share(partition, base, before) for partition in range(before)) == pytest.approx(1)
    assert 0 <= lh.moved_share(base, before, after) <= 1
    assert lh.moved_share(base, before, after) == pytest.approx(lh.moved_share(base, after, before))


@pytest.mark.parametrize(("initial", "base"), [(64, 1), (48, 3), (100, 25), (96, 3), (7, 7), (1, 1)])
def test_the_base_is_the_odd_part(initial: int, base: int) -> None:
    assert lh.base_of(initial) == base


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        lh.base_of(0)
    with pytest.raises(ValueError, match="fewer than the base"):
        lh.address(1, 3, 2)
    with pytest.raises(ValueError, match="split off from none"):
        lh.parent(2, 3)
