"""The function of all gates: the meaning of each input. `tests/model` covers every small instance."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.order_gates import UNKNOWN, next_closed, waits
from tests.protocol.test_lineage import lineages

SPLIT = Lineage(1, [(0, 1), (1, 2)])
PARENT, CHILD = KeyEpoch(0, 0), KeyEpoch(1, 1)


def reasons(
    lineage: Lineage,
    key_epoch: KeyEpoch,
    ends: Mapping[KeyEpoch, int],
    committed: Mapping[int, int],
    starts: Mapping[int, int] | None = None,
    there: range = range(8),
) -> list[str]:
    found = waits(
        lineage,
        key_epoch,
        there=there,
        end=lambda one: ends.get(one, UNKNOWN),
        committed=lambda partition: committed.get(partition, UNKNOWN),
        start=lambda partition: (starts or {}).get(partition, UNKNOWN),
    )
    return [str(wait) for wait in found]


def test_key_epoch_without_predecessors_is_open() -> None:
    assert reasons(SPLIT, PARENT, {}, {}) == []
    assert reasons(SPLIT, KeyEpoch(0, 1), {}, {}) == []


def test_child_waits_for_commit_of_its_parent_end() -> None:
    assert reasons(SPLIT, CHILD, {}, {0: 99}) == ["0@0 to reach an end not yet known (committed: 99)"]
    assert reasons(SPLIT, CHILD, {PARENT: 10}, {}) == ["0@0 to reach offset 10 (committed: nothing)"]
    assert reasons(SPLIT, CHILD, {PARENT: 10}, {0: 9}) == ["0@0 to reach offset 10 (committed: 9)"]
    assert reasons(SPLIT, CHILD, {PARENT: 10}, {0: 10}) == []


def test_expired_predecessor_counts_as_read_without_commit() -> None:
    assert reasons(SPLIT, CHILD, {PARENT: 10}, {}, {0: 9}) != []
    assert reasons(SPLIT, CHILD, {PARENT: 10}, {}, {0: 10}) == []
    assert reasons(SPLIT, CHILD, {PARENT: 0}, {}, {0: 0}) == [], "nothing was ever in it"


def test_removed_partition_counts_as_read_and_its_predecessors_are_checked() -> None:
    lineage = Lineage(1, [(0, 1), (1, 2), (2, 4)])
    assert reasons(lineage, KeyEpoch(3, 2), {PARENT: 5}, {0: 4}, there=range(1)) == [
        "0@0 to reach offset 5 (committed: 4)"
    ]
    assert reasons(lineage, KeyEpoch(3, 2), {PARENT: 5}, {0: 5}, there=range(1)) == []


def closed_before(lineage: Lineage, partition: int, position: int, closed: set[KeyEpoch], cut: int) -> KeyEpoch | None:
    return next_closed(lineage, partition, position, is_open=lambda one: one not in closed, cut=lambda _: cut)


def test_stock_consumer_is_blocked_by_closed_partition() -> None:
    assert closed_before(SPLIT, 1, 0, set(), 5) is None
    assert closed_before(SPLIT, 1, 0, {CHILD}, 5) == CHILD
    assert closed_before(SPLIT, 0, 0, set(), 5) is None


def test_merge_target_is_readable_up_to_its_cut() -> None:
    merge = Lineage(1, [(0, 2), (1, 1)])
    behind = KeyEpoch(0, 1)
    assert closed_before(merge, 0, 4, {behind}, 5) is None
    assert closed_before(merge, 0, 5, {behind}, 5) == behind
    assert closed_before(merge, 0, 4, {behind}, UNKNOWN) == behind, "it is not known how far it may be read"


@given(lineages())
def test_key_epoch_waits_for_whatever_the_one_before_it_waits_for(known: Lineage) -> None:
    for partition in range(12):
        for key_epoch in known.key_epochs(partition):
            before = known.previous(key_epoch)
            inherited = () if before is None else known.sources(before)
            assert set(inherited) <= set(known.sources(key_epoch))


@given(st.integers(0, 40), st.integers(0, 40))
def test_first_closed_key_epoch_is_found_with_few_questions(count: int, open_count: int) -> None:
    grown_and_shrunk = Lineage(1, [(generation, 1 + generation % 2) for generation in range(count + 1)])
    key_epochs = grown_and_shrunk.key_epochs(0)
    closed, asked = set(key_epochs[open_count:]), list[KeyEpoch]()

    def is_open(key_epoch: KeyEpoch) -> bool:
        asked.append(key_epoch)
        return key_epoch not in closed

    first = next((one for one in key_epochs if one in closed), None)
    assert next_closed(grown_and_shrunk, 0, 5, is_open=is_open, cut=lambda _: 5) == first
    assert len(asked) <= 7
