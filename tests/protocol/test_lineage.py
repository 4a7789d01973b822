"""The key epoch graph and its dependencies (rules R1, R5, R9)."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol import linear_hashing
from anabranch.protocol.lineage import KeyEpoch, Lineage


def lineage(*counts: int, base: int = 1) -> Lineage:
    return Lineage(base, list(enumerate(counts)))


@st.composite
def lineages(draw: st.DrawFn) -> Lineage:
    """Any path of counts, below and above the base."""
    base = draw(st.integers(1, 8))
    counts = draw(st.lists(st.integers(1, 12), min_size=1, max_size=6))
    return lineage(*counts, base=base)


def text(key_epochs: tuple[KeyEpoch, ...]) -> str:
    return " ".join(str(key_epoch) for key_epoch in key_epochs)


def test_split_child_waits_for_its_parent() -> None:
    grown = lineage(4, 6)
    assert text(grown.predecessors(KeyEpoch(4, 1))) == "0@0"
    assert text(grown.successors(KeyEpoch(1, 0))) == "5@1"
    assert grown.predecessors(KeyEpoch(0, 1)) == ()


def test_merge_target_waits_for_retiring_partitions_merged_into_it() -> None:
    shrunk = lineage(4, 6, 8, 5)
    assert text(shrunk.predecessors(KeyEpoch(3, 3))) == "7@2"
    assert text(shrunk.predecessors(KeyEpoch(1, 3))) == "5@1"
    assert text(shrunk.successors(KeyEpoch(6, 2))) == "2@3"


def test_two_levels_at_once_have_one_existing_parent() -> None:
    assert text(lineage(1, 4).predecessors(KeyEpoch(3, 1))) == "0@0"


def test_resize_through_the_base_has_remaining_merge_targets_and_existing_parents() -> None:
    shrunk = lineage(8, 2, base=3)
    assert text(shrunk.predecessors(KeyEpoch(0, 1))) == "2@0 3@0 5@0 6@0"
    assert text(shrunk.predecessors(KeyEpoch(1, 1))) == "4@0 7@0"
    grown = lineage(2, 7, base=3)
    assert [text(grown.predecessors(KeyEpoch(one, 1))) for one in range(2, 7)] == ["0@0", "0@0", "1@0", "0@0", "0@0"]
    assert text(lineage(8, 1, base=3).successors(KeyEpoch(7, 0))) == "0@1"


def test_below_the_base_merge_target_and_child_wait_as_above() -> None:
    there_and_back = lineage(3, 2, 1, 5, base=3)
    assert text(there_and_back.predecessors(KeyEpoch(0, 1))) == "2@0"
    assert there_and_back.class_generations(1) == (0, 2, 3), "3 -> 2 does not touch the keys of 1"
    assert text(there_and_back.predecessors(KeyEpoch(0, 2))) == "1@0"
    assert [text(there_and_back.predecessors(KeyEpoch(one, 3))) for one in range(1, 5)] == ["0@2"] * 4


def test_chain_through_empty_partition_is_kept() -> None:
    # The published KIP opens 3 when 1 is empty; here 3 waits for 1, which itself waits for 0 (K601).
    chain = lineage(1, 2, 4)
    assert text(chain.predecessors(KeyEpoch(3, 2))) == "1@1"
    assert text(chain.predecessors(KeyEpoch(1, 1))) == "0@0"


def test_growing_during_a_pending_removal_continues_the_same_log() -> None:
    undone = lineage(4, 2, 4)
    assert text(undone.key_epochs(3)) == "3@0 3@1 3@2"
    assert undone.previous(KeyEpoch(3, 2)) == KeyEpoch(3, 1)
    assert text(undone.predecessors(KeyEpoch(3, 2))) == "1@1"
    assert text(undone.predecessors(KeyEpoch(1, 1))) == "3@0"


def test_class_generations_never_repeat_though_counts_do() -> None:
    # Count ABA, K204: 4 -> 8 -> 4 must not look like "nothing happened".
    assert [lineage(4, 8, 4).class_generation(0, generation) for generation in range(3)] == [0, 1, 2]


def test_unaffected_partition_keeps_its_class_generation() -> None:
    # Rule R5, confinement I13: 4 -> 5 splits partition 0 only.
    assert [lineage(4, 5).class_generation(partition) for partition in range(5)] == [1, 0, 0, 0, 1]


def test_unknown_partitions_and_histories_are_refused() -> None:
    with pytest.raises(ValueError, match="not part of the topic"):
        lineage(2).class_generation(2)
    with pytest.raises(ValueError, match="rising list"):
        Lineage(1, [(1, 2), (1, 3)])


@given(lineages(), st.integers(0, 10_000))
def test_key_epochs_of_a_key_form_a_chain(history: Lineage, key_hash: int) -> None:
    """After any resizes, the key's present key epoch is reachable from its previous one."""

    def reaches(target: KeyEpoch, source: KeyEpoch) -> bool:
        if target == source:
            return True
        before = history.previous(target)
        sources = [*history.predecessors(target), *([before] if before else [])]
        return any(reaches(one, source) for one in sources if one.generation >= source.generation)

    homes = []
    for generation, count in history.history:
        partition = linear_hashing.address(key_hash, history.base, count)
        homes.append(KeyEpoch(partition, history.class_generation(partition, generation)))
    for source, target in itertools.pairwise(homes):
        assert reaches(target, source), f"{history}: {source} is not before {target}"


@given(lineages())
def test_predecessors_agree_with_moved_keys(history: Lineage) -> None:
    """Two partitions have an edge at a resize if and only if a key moves between them."""
    period = range(history.base << 4)
    shown, known = set(), set()
    for (_, before), (generation, after) in itertools.pairwise(history.history):
        for key_hash in period:
            source = linear_hashing.address(key_hash, history.base, before)
            target = linear_hashing.address(key_hash, history.base, after)
            if source != target:
                last = KeyEpoch(source, history.class_generation(source, generation - 1))
                shown.add((last, KeyEpoch(target, generation)))
        for partition in range(after):
            key_epoch = KeyEpoch(partition, generation)
            if generation in history.class_generations(partition):
                known |= {(source, key_epoch) for source in history.predecessors(key_epoch)}
    assert shown == known


@given(lineages())
def test_predecessors_and_successors_describe_the_same_graph(history: Lineage) -> None:
    everything = [key_epoch for partition in range(12) for key_epoch in history.key_epochs(partition)]
    forward = {(one, other) for one in everything for other in history.successors(one)}
    backward = {(other, one) for one in everything for other in history.predecessors(one)}
    assert forward == backward
    assert all(one.generation < other.generation for one, other in forward)


@given(lineages())
def test_only_receiving_partitions_have_key_epochs_with_sources(known: Lineage) -> None:
    partitions = range(max(count for _, count in known.history))
    with_sources = {index for index in partitions if any(map(known.sources, known.key_epochs(index)))}
    assert known.receiving_partitions() == with_sources
