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
    assert (changed.take(), changed.take()) == ([one, other], []), "each is new at first"
    other.become_leader(state_of(isr=(1, 2)), 0)
    append(other)
    append(other)
    assert (changed.take(), changed.take()) == ([other], [])
    report(other, 2, 2, 1.0)
    assert (changed.take(), changed.take()) == ([other], [])


def test_removed_partition_is_not_tracked() -> None:
    one, changed = hosted(), ChangedPartitions()
    changed.add(one)
    changed.remove(one)
    assert (changed.take(), one.listeners) == ([], {})
    changed.add(one)
    changed.take()
    changed.remove(one)
    one.notify_listeners()
    assert (changed.take(), one.listeners) == ([], {})
