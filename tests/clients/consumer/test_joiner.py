"""Which metadata a member waits for after a join, and what of its assignment it adopts."""

from __future__ import annotations

from anabranch import TopicPartition
from anabranch.broker.coordinators.consumer_groups.member import STABLE, UNREVOKED, Member
from anabranch.broker.coordinators.consumer_groups.reconciliation import reconcile
from anabranch.clients.consumer.joiner import knows_new_partitions, without_removed
from tests.clients.test_metadata import ID, after, partition, response, topic

KEPT, LEFT, NEVER_READ = (TopicPartition("t", index) for index in (0, 1, 2))
MERGED = after(response(topic(partition(0), partition(1), counts=(3, 2))))
"""A merge from three partitions to two has removed the last."""


def test_member_waits_for_partitions_that_are_new_to_it_and_not_for_removed_ones_that_it_reads() -> None:
    metadata = after(response(topic(partition(0))))
    known, removed = TopicPartition("t", 0), TopicPartition("t", 1)
    assert knows_new_partitions(metadata, [known], lambda one: False)
    assert not knows_new_partitions(metadata, [known, removed], lambda one: one == known)
    assert knows_new_partitions(metadata, [known, removed], lambda one: one == removed)


def test_removed_partition_that_the_member_never_read_is_left_out() -> None:
    assert knows_new_partitions(MERGED, [KEPT, NEVER_READ], lambda one: one == KEPT)
    assert without_removed(MERGED, [KEPT, NEVER_READ], lambda one: one == KEPT) == (KEPT,)
    assert without_removed(MERGED, [KEPT, NEVER_READ], lambda one: True) == (KEPT, NEVER_READ)


def test_partition_that_never_existed_is_waited_for() -> None:
    unknown = TopicPartition("t", 3)
    assert not knows_new_partitions(MERGED, [unknown], lambda one: False)
    assert without_removed(MERGED, [unknown], lambda one: False) == (unknown,)


def test_member_assigned_a_removed_partition_that_it_never_read_revokes_the_others() -> None:
    """The coordinator repeats the removed partition until the member reports the revocation."""
    reads = {KEPT, LEFT}
    member = Member(member_id="m", epoch=1, previous_epoch=0, assigned={ID: frozenset({0, 1, 2})})
    revoking = reconcile(
        member, target={ID: frozenset({0, 2})}, target_epoch=2, owned=shares(reads), free_of=lambda _, wanted: wanted
    )
    assert revoking.state is UNREVOKED and revoking.assigned == {ID: frozenset({0, 2})}
    merged = {ID: frozenset({0})}
    again = reconcile(revoking, target=merged, target_epoch=3, owned=shares(reads), free_of=lambda _, wanted: wanted)
    assert again is revoking

    given = [TopicPartition("t", index) for index in sorted(again.assigned[ID])]
    assert knows_new_partitions(MERGED, given, reads.__contains__)
    adopted = set(without_removed(MERGED, given, reads.__contains__))
    done = reconcile(again, target=merged, target_epoch=3, owned=shares(adopted), free_of=lambda _, wanted: wanted)
    assert done.state is STABLE and done.epoch == 3 and done.assigned == merged


def shares(partitions: set[TopicPartition]) -> dict[bytes, frozenset[int]]:
    return {ID: frozenset(one.partition for one in partitions)}
