"""Changed partitions are returned once, unchanged ones not, and removed ones are not kept."""

from __future__ import annotations

from anabranch.broker.replication.changed_partitions import ChangedPartitions
from tests.broker.replication.partitions import state_of
from tests.broker.replication.test_lagging_replicas import append, hosted, report


def test_changed_partitions_are_taken_once() -> None:
    one, other, changed = hosted(), hosted(), ChangedPartitions()
    changed.add(one)
    changed.add(other)
    assert list(changed) == [one, other]
    assert (changed.take(9), changed.take(9)) == ([one, other], []), "each is new at first"
    other.become_leader(state_of(isr=(1, 2)), 0)
    append(other)
    append(other)
    assert (changed.take(9), changed.take(9)) == ([other], [])
    report(other, 2, 2, 1.0)
    assert (changed.take(9), changed.take(9)) == ([other], [])


def test_many_changed_partitions_are_taken_some_at_once() -> None:
    """A partition that changes again meanwhile waits for the next round: a busy broker ends each round."""
    partitions, changed, rounds = [hosted() for _ in range(5)], ChangedPartitions(), []
    for one in partitions:
        changed.add(one)
    for some in changed.take_all(2):
        rounds.append(some)
        partitions[0].notify_listeners()
    assert rounds == [partitions[:2], partitions[2:4], [partitions[4], partitions[0]]]
    assert changed.take(9) == [partitions[0]]


def test_removed_partition_is_not_tracked() -> None:
    one, changed = hosted(), ChangedPartitions()
    changed.add(one)
    changed.remove(one)
    assert (changed.take(9), one.listeners) == ([], {})
    changed.add(one)
    changed.take(9)
    changed.remove(one)
    one.notify_listeners()
    assert (changed.take(9), one.listeners) == ([], {})
