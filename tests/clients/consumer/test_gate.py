"""The order gate against the analysis: rules R7, R9, R10, R11 and the defects they repair."""

import itertools
from collections.abc import Iterator

import pytest

from clients.consumer.gate import UNKNOWN, PartitionView, TopicGate, Wait
from protocol import linear_hashing
from protocol.lineage import Lineage, Segment


def gate(*counts: int, epochs: dict[int, int] | None = None) -> TopicGate:
    """A topic resized through `counts`; leader epoch = the class generation, unless said otherwise."""
    lineage = Lineage(1, list(enumerate(counts)))
    views = {
        partition: PartitionView(
            leader_epoch=(epochs or {}).get(partition, lineage.class_generation(partition)),
            gen_start=tuple((generation, generation) for generation in lineage.class_generations(partition)),
        )
        for partition in range(max(counts))
    }
    return TopicGate(lineage, views)


def test_r9_a_child_opens_when_its_parent_is_committed_to_the_cut() -> None:
    topic = gate(1, 2)
    child, parent = Segment(1, 1), Segment(0, 0)
    assert [str(wait) for wait in topic.waits(child)] == ["0@0 to reach an end not yet known (committed: nothing)"]
    topic.note_end(parent, 10, leader_epoch=1)
    topic.note_committed(0, 9)
    assert not topic.is_open(child)
    topic.note_committed(0, 10)
    assert topic.is_open(child)


def test_r9_an_empty_parent_must_still_be_committed() -> None:
    topic = gate(1, 2)
    topic.note_end(Segment(0, 0), 0, leader_epoch=1)
    assert not topic.is_open(Segment(1, 1)), "nothing committed is not offset 0 (A4)"
    topic.note_committed(0, 0)
    assert topic.is_open(Segment(1, 1))


def test_f1_a_chain_through_an_empty_partition_waits_for_its_far_end() -> None:
    topic = gate(1, 2, 4)
    topic.note_end(Segment(1, 1), 0, leader_epoch=2)
    topic.note_committed(1, 0)
    topic.note_end(Segment(0, 0), 5, leader_epoch=2)
    topic.note_committed(0, 4)
    assert [wait.segment for wait in topic.waits(Segment(3, 2))] == [Segment(0, 0)]
    topic.note_committed(0, 5)
    assert topic.is_open(Segment(3, 2))


def test_a_survivor_waits_for_its_victim_only_beyond_the_cut() -> None:
    topic = gate(2, 1)
    assert topic.is_open(Segment(0, 0))
    topic.note_end(Segment(1, 0), 3, leader_epoch=1)
    assert not topic.is_open(Segment(0, 1))
    topic.note_committed(1, 3)
    assert topic.is_open(Segment(0, 1))


def test_r7_a_boundary_is_asked_again_after_a_leader_change() -> None:
    topic = gate(1, 2)
    topic.note_end(Segment(0, 0), 100, leader_epoch=1)
    topic.note_committed(0, 100)
    assert topic.is_open(Segment(1, 1))
    views = {0: PartitionView(2, ((0, 0), (1, 1))), 1: PartitionView(1, ((1, 1),))}
    topic.refresh(topic.lineage, views)
    assert topic.end(Segment(0, 0)) == UNKNOWN, "the new leader may have cut elsewhere (D9)"
    assert not topic.is_open(Segment(1, 1))


def test_r11_a_batch_newer_than_metadata_has_no_segment_yet() -> None:
    topic = gate(1, 2)
    assert topic.segment_at(0, 0) == Segment(0, 0)
    assert topic.segment_at(0, 1) == Segment(0, 1)
    assert topic.segment_at(0, 2) is None
    assert topic.segment_at(7, 0) is None


def test_older_metadata_never_wins() -> None:
    topic = gate(1, 2)
    topic.refresh(Lineage(1, [(0, 1)]), {0: PartitionView(0, ((0, 0),))})
    assert topic.lineage.generation == 1


def test_a_removed_partition_is_done_but_its_ancestors_count() -> None:
    topic = gate(1, 2, 4, 2)
    remaining = {
        0: PartitionView(3, ((0, 0), (1, 1), (2, 2), (3, 3))),
        1: PartitionView(3, ((1, 1), (2, 2), (3, 3))),
    }
    topic.refresh(topic.lineage, remaining)
    assert [wait.segment for wait in topic.waits(Segment(1, 3))] == [Segment(0, 0)]
    topic.note_end(Segment(0, 0), 4, leader_epoch=3)
    topic.note_committed(0, 4)
    assert topic.is_open(Segment(1, 3))


def test_an_owner_commits_where_its_partition_was_cut() -> None:
    topic = gate(4, 6)
    assert list(topic.boundaries(0)) == [Segment(0, 0)]
    assert list(topic.boundaries(3)) == []


SCRIPTS = [(1, 2), (2, 1), (1, 2, 4), (1, 2, 1), (2, 1, 2), (4, 2, 1), (1, 4), (2, 4, 1), (4, 2, 1, 4), (1, 3, 2, 4)]


def waits_without_recursion(self: TopicGate, segment: Segment, seen: set[Segment]) -> Iterator[Wait]:
    """Planted (F1): only the next segment up the lineage counts."""
    for source in self.lineage.predecessors(segment):
        if self.end(source) == UNKNOWN or self.committed(source.partition) < self.end(source):
            yield Wait(source, self.end(source), self.committed(source.partition))


def test_a_gate_that_does_not_recurse_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopicGate, "_waits", waits_without_recursion)
    with pytest.raises(AssertionError, match="came late"):
        explore((1, 2, 4), 3, (1, 0, 1))


def test_a_gate_on_positions_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted (F2): what was handed out counts as done; its owner crashes before the commit."""
    explore((1, 2), 1, (1, 1))
    monkeypatch.setattr(f"{__name__}.counts_as_done", lambda positions, committed: positions)
    with pytest.raises(AssertionError, match="came late"):
        explore((1, 2), 1, (1, 1))


@pytest.mark.parametrize("counts", SCRIPTS, ids=str)
def test_no_interleaving_reorders_a_key(counts: tuple[int, ...]) -> None:
    """Explore every interleaving of delivering, committing and one crash over all small logs of one key (model M1)."""
    for key_hash in range(max(counts)):
        for sizes in itertools.product(range(3), repeat=len(counts)):
            if 0 < sum(sizes) <= 3:
                explore(counts, key_hash, sizes)


def counts_as_done(positions: tuple[int, ...], committed: tuple[int, ...]) -> tuple[int, ...]:
    """What gates are told."""
    return committed


def explore(counts: tuple[int, ...], key_hash: int, sizes: tuple[int, ...]) -> None:
    topic = gate(*counts)
    lineage, width = topic.lineage, max(counts)
    logs: list[list[tuple[int, int]]] = [[] for _ in range(width)]
    for generation, size in enumerate(sizes):
        home = linear_hashing.address(key_hash, 1, counts[generation])
        for _ in range(size):
            logs[home].append((lineage.class_generation(home, generation), sum(len(log) for log in logs)))
    for partition in range(width):
        for segment in topic.boundaries(partition):
            end = sum(1 for generation, _ in logs[partition] if generation <= segment.generation)
            topic.note_end(segment, end, leader_epoch=len(counts))

    start = ((0,) * width, (UNKNOWN,) * width, 1)
    seen, todo, finished = {start}, [start], False
    while todo:
        positions, committed, crashes = todo.pop()
        finished |= all(position == len(log) for position, log in zip(positions, logs, strict=True))
        for partition, offset in enumerate(counts_as_done(positions, committed)):
            topic.note_committed(partition, offset)
        for partition in range(width):
            step = None
            if positions[partition] < len(logs[partition]):
                generation, sequence = logs[partition][positions[partition]]
                if topic.is_open(Segment(partition, generation)):
                    handed_out = [
                        later
                        for other, at in enumerate(positions)
                        if other != partition
                        for _, later in logs[other][:at]
                    ]
                    assert all(later < sequence for later in handed_out), f"{counts} {logs}: {sequence} came late"
                    step = (with_at(positions, partition, positions[partition] + 1), committed, crashes)
            following = [step] if step else []
            following.append((positions, with_at(committed, partition, positions[partition]), crashes))
            if crashes:
                rewound = with_at(positions, partition, max(committed[partition], 0))
                following.append((rewound, committed, crashes - 1))
            for state in following:
                if state not in seen:
                    seen.add(state)
                    todo.append(state)
    assert finished, f"{counts} {logs}: stuck"


def with_at(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])
