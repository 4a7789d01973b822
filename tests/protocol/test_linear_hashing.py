"""Properties of linear hashing that a resize relies on (K201 to K203), at, above and below the base."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol import linear_hashing as lh

bases = st.integers(1, 40)
hashes = st.integers(0, 2**31 - 1)


@st.composite
def resizes(draw: st.DrawFn) -> tuple[int, int, int]:
    """A base, and two counts, each perhaps below it."""
    base = draw(bases)
    return base, draw(st.integers(1, 6 * base + 8)), draw(st.integers(1, 6 * base + 8))


def published(key_hash: int, base: int, count: int) -> int:
    """The mapping as KIP-253 has it, which knows no count below the base."""
    level = base
    while level * 2 <= count:
        level *= 2
    return key_hash % (2 * level) if key_hash % level < count - level else key_hash % level


def cleared(key_hash: int, base: int, count: int) -> int:
    """The mapping below the base, in the words of its definition."""
    partition = key_hash % base
    while partition >= count:
        partition -= 1 << (partition.bit_length() - 1)
    return partition


@given(hashes, bases, st.integers(0, 7))
def test_addresses_equal_kafka_placement_at_base_times_a_power_of_two(key_hash: int, base: int, doublings: int) -> None:
    count = base << doublings
    assert lh.address(key_hash, base, count) == key_hash % count


@given(hashes, bases, st.integers(0, 300))
def test_at_and_above_the_base_addresses_equal_published_algorithm(key_hash: int, base: int, more: int) -> None:
    assert lh.address(key_hash, base, base + more) == published(key_hash, base, base + more)


@given(hashes, resizes())
def test_below_the_base_highest_bit_is_cleared_until_partition_exists(
    key_hash: int, resize: tuple[int, int, int]
) -> None:
    base, count, _ = resize
    count = min(count, base)
    assert lh.address(key_hash, base, count) == cleared(key_hash, base, count)


@given(hashes, st.integers(1, 96), st.integers(0, 100))
def test_odd_part_as_base_changes_nothing_at_or_above_initial_count(key_hash: int, initial: int, more: int) -> None:
    count = initial + more
    assert lh.address(key_hash, lh.base_of(initial), count) == lh.address(key_hash, initial, count)


@given(hashes, bases, st.lists(st.integers(1, 120), min_size=2, max_size=8))
def test_key_moves_only_into_new_or_out_of_removed_partitions(key_hash: int, base: int, counts: list[int]) -> None:
    """Any sequence of counts, through the base and several levels."""
    for before, after in pairwise(counts):
        old, new = lh.address(key_hash, base, before), lh.address(key_hash, base, after)
        if old != new and before < after:
            assert new >= before and lh.ancestor(new, before, base) == old, "one parent"
        elif old != new:
            assert old >= after and lh.ancestor(old, after, base) == new, "one merge target, which stays itself"


@given(resizes())
def test_partition_holds_exactly_the_keys_of_its_class(resize: tuple[int, int, int]) -> None:
    """Every key is in its partition's class, and the class has no other keys."""
    base, count, _ = resize
    period = base << count.bit_length()
    theirs = Counter(map(lh.addressing(base, count), range(period)))
    classes = [lh.key_class(partition, base, count) for partition in range(count)]
    assert [held and held.share * period for held in classes] == [pytest.approx(theirs[one]) for one in range(count)]
    for key_hash in range(period):
        held = classes[lh.address(key_hash, base, count)]
        assert held is not None and held.holds(key_hash)
    assert lh.key_class(count, base, count) is None


@given(resizes())
def test_only_affected_partitions_gain_or_lose_keys(resize: tuple[int, int, int]) -> None:
    base, before, after = resize
    changed = set()
    for key_hash in range(base << max(before, after).bit_length()):
        old, new = lh.address(key_hash, base, before), lh.address(key_hash, base, after)
        if old != new:
            changed |= {old, new}
    assert lh.affected_partitions(base, before, after) == sorted(changed)
    every = range(max(before, after))
    assert changed == {one for one in every if lh.key_class(one, base, before) != lh.key_class(one, base, after)}


@pytest.mark.parametrize("base", [1, 2, 3, 5, 6, 11, 12])
def test_classes_overlap_if_and_only_if_they_share_a_key(base: int) -> None:
    counts = range(1, 4 * base + 4)
    classes = {lh.key_class(index, base, count) for count in counts for index in range(count)}
    period = range(base << counts[-1].bit_length())
    keys = {one: {key_hash for key_hash in period if one.holds(key_hash)} for one in classes if one is not None}
    for one, ours in keys.items():
        assert lh.EVERY_KEY.overlaps(one) and one.overlaps(lh.EVERY_KEY)
        for other, theirs in keys.items():
            assert one.overlaps(other) == bool(ours & theirs), (one, other)
            assert not ours & theirs or ours <= theirs or theirs <= ours, "nested or disjoint"
            assert (one == other) == (ours == theirs)


def test_one_more_partition_affects_one_parent_and_one_child() -> None:
    assert lh.affected_partitions(125, 1000, 1001) == [0, 1000]
    assert lh.affected_partitions(125, 100, 101) == [36, 100]


def test_partitions_below_an_odd_base_merge_as_with_base_one() -> None:
    assert [lh.parent(partition, 7) for partition in range(1, 10)] == [0, 0, 1, 0, 1, 2, 0, 1, 2]
    assert [lh.ancestor(7, count, 3) for count in range(1, 8)] == [0, 1, 1, 1, 1, 1, 1]
    assert [lh.ancestor(11, count, 3) for count in (1, 2, 3, 5, 6, 12)] == [0, 0, 2, 2, 5, 11]


@pytest.mark.parametrize(
    ("base", "count", "expected"),
    [
        *[(1, 8, 1.0), (1, 9, 1.125), (1, 12, 1.5), (1, 15, 1.875), (1, 16, 1.0)],
        *[(3, 3, 1.0), (3, 2, 4 / 3), (3, 1, 1.0), (5, 4, 1.6), (5, 2, 1.2), (9, 8, 16 / 9)],
    ],
)
def test_imbalance_is_periodic_between_powers_of_two(base: int, count: int, expected: float) -> None:
    assert lh.imbalance(base, count) == pytest.approx(expected)


@given(resizes())
def test_shares_sum_to_one_and_none_is_twice_the_mean(resize: tuple[int, int, int]) -> None:
    base, before, after = resize
    assert sum(lh.shares(base, before)) == pytest.approx(1)
    assert 1 <= lh.imbalance(base, before) + 1e-9 < 2
    assert 0 <= lh.moved_share(base, before, after) <= 1
    assert lh.moved_share(base, before, after) == pytest.approx(lh.moved_share(base, after, before))


@pytest.mark.parametrize(("initial", "base"), [(64, 1), (48, 3), (100, 25), (96, 3), (7, 7), (1, 1)])
def test_base_is_the_odd_part(initial: int, base: int) -> None:
    assert lh.base_of(initial) == base


def test_invalid_counts_are_refused() -> None:
    for nonsense in (lambda: lh.base_of(0), lambda: lh.address(1, 3, 0), lambda: lh.ancestor(2, 0, 3)):
        with pytest.raises(ValueError, match="at least one"):
            nonsense()
    with pytest.raises(ValueError, match="has no parent"):
        lh.parent(0, 3)
