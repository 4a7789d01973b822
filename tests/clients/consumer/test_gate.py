"""The order gate, rule by rule: R7, R9, R10, R11. `tests/model` covers every small instance."""

from anabranch.clients.consumer.gate import PartitionView, TopicGate
from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.order_gates import UNKNOWN


def gate(*counts: int, epochs: dict[int, int] | None = None) -> TopicGate:
    """A topic resized through `counts`; leader epochs equal class generations by default."""
    lineage = Lineage(1, list(enumerate(counts)))
    views = {
        partition: PartitionView(
            leader_epoch=(epochs or {}).get(partition, lineage.class_generation(partition)),
            gen_start=tuple((generation, generation) for generation in lineage.class_generations(partition)),
        )
        for partition in range(max(counts))
    }
    return TopicGate(lineage, views)


def test_r9_child_opens_when_its_parent_is_committed_to_the_cut() -> None:
    topic = gate(1, 2)
    child, parent = KeyEpoch(1, 1), KeyEpoch(0, 0)
    assert [str(wait) for wait in topic.waits(child)] == ["0@0 to reach an end not yet known (committed: nothing)"]
    topic.note_end(parent, 10, leader_epoch=1)
    topic.note_committed(0, 9)
    assert not topic.is_open(child)
    topic.note_committed(0, 10)
    assert topic.is_open(child)


def test_r9_empty_parent_must_still_be_committed() -> None:
    topic = gate(1, 2)
    topic.note_end(KeyEpoch(0, 0), 0, leader_epoch=1)
    assert not topic.is_open(KeyEpoch(1, 1)), "nothing committed is not offset 0 (K104)"
    topic.note_committed(0, 0)
    assert topic.is_open(KeyEpoch(1, 1))


def test_f1_chain_through_empty_partition_waits_for_its_first_ancestor() -> None:
    topic = gate(1, 2, 4)
    topic.note_end(KeyEpoch(1, 1), 0, leader_epoch=2)
    topic.note_committed(1, 0)
    topic.note_end(KeyEpoch(0, 0), 5, leader_epoch=2)
    topic.note_committed(0, 4)
    assert [wait.key_epoch for wait in topic.waits(KeyEpoch(3, 2))] == [KeyEpoch(0, 0)]
    topic.note_committed(0, 5)
    assert topic.is_open(KeyEpoch(3, 2))


def test_merge_target_waits_for_retiring_partition_only_beyond_the_cut() -> None:
    topic = gate(2, 1)
    assert topic.is_open(KeyEpoch(0, 0))
    topic.note_end(KeyEpoch(1, 0), 3, leader_epoch=1)
    assert not topic.is_open(KeyEpoch(0, 1))
    topic.note_committed(1, 3)
    assert topic.is_open(KeyEpoch(0, 1))


def test_r7_boundary_is_unknown_after_leader_change() -> None:
    topic = gate(1, 2)
    topic.note_end(KeyEpoch(0, 0), 100, leader_epoch=1)
    topic.note_committed(0, 100)
    assert topic.is_open(KeyEpoch(1, 1))
    views = {0: PartitionView(2, ((0, 0), (1, 1))), 1: PartitionView(1, ((1, 1),))}
    topic.refresh(topic.lineage, views)
    assert topic.end(KeyEpoch(0, 0)) == UNKNOWN, "the new leader may have cut elsewhere (K409)"
    assert not topic.is_open(KeyEpoch(1, 1))


def test_r11_batch_newer_than_metadata_has_no_key_epoch_yet() -> None:
    topic = gate(1, 2)
    assert topic.key_epoch_at(0, 0) == KeyEpoch(0, 0)
    assert topic.key_epoch_at(0, 1) == KeyEpoch(0, 1)
    assert topic.key_epoch_at(0, 2) is None
    assert topic.key_epoch_at(7, 0) is None


def test_batch_of_resize_that_metadata_shows_only_in_epochs_has_no_key_epoch_yet() -> None:
    ahead = TopicGate(Lineage(1, [(0, 1)]), {0: PartitionView(1, ((0, 0), (1, 1)))})
    assert ahead.key_epoch_at(0, 0) == KeyEpoch(0, 0)
    assert ahead.key_epoch_at(0, 1) is None


def test_older_metadata_is_ignored() -> None:
    topic = gate(1, 2)
    topic.refresh(Lineage(1, [(0, 1)]), {0: PartitionView(0, ((0, 0),))})
    assert topic.lineage.generation == 1


def test_removed_partition_is_done_but_its_ancestors_count() -> None:
    topic = gate(1, 2, 4, 2)
    remaining = {
        0: PartitionView(3, ((0, 0), (1, 1), (2, 2), (3, 3))),
        1: PartitionView(3, ((1, 1), (2, 2), (3, 3))),
    }
    topic.refresh(topic.lineage, remaining)
    assert [wait.key_epoch for wait in topic.waits(KeyEpoch(1, 3))] == [KeyEpoch(0, 0)]
    topic.note_end(KeyEpoch(0, 0), 4, leader_epoch=3)
    topic.note_committed(0, 4)
    assert topic.is_open(KeyEpoch(1, 3))


def test_boundaries_of_owner_are_cuts_of_its_partition() -> None:
    topic = gate(4, 6)
    assert list(topic.boundaries(0)) == [KeyEpoch(0, 0)]
    assert list(topic.boundaries(3)) == []
