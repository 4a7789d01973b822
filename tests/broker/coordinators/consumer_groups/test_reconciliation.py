"""The state machine of one member, step by step, as in KIP-848's table."""

from __future__ import annotations

import dataclasses

import pytest

from anabranch.broker.coordinators.consumer_groups.assignment import Assignment
from anabranch.broker.coordinators.consumer_groups.member import STABLE, UNKNOWN, UNRELEASED, UNREVOKED, Member
from anabranch.broker.coordinators.consumer_groups.reconciliation import reconcile
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.coordinators.consumer_groups.world import partitions, topic_id

ALL = partitions(t=range(6))


def member(assigned: Assignment, epoch: int = 5, **rest: object) -> Member:
    return Member(member_id="m", epoch=epoch, previous_epoch=epoch - 1, assigned=assigned, **rest)  # type: ignore[arg-type]


def step(
    before: Member, target: Assignment, *, owned: Assignment | None = None, taken: Assignment | None = None
) -> Member:
    held = taken or {}
    return reconcile(
        before,
        target=target,
        target_epoch=6,
        owned=owned,
        free_of=lambda topic, indexes: indexes.difference(held.get(topic, ())),
    )


def outcome(after: Member) -> tuple[object, ...]:
    return after.state, after.epoch, after.previous_epoch, after.assigned, after.revoking


def test_free_partitions_are_assigned_at_the_target_epoch() -> None:
    after = step(member(partitions(t=[0])), partitions(t=[0, 1]))
    assert outcome(after) == (STABLE, 6, 5, partitions(t=[0, 1]), {})


def test_unchanged_target_advances_only_the_epoch() -> None:
    before = member(partitions(t=[0]))
    assert outcome(step(before, before.assigned)) == (STABLE, 6, 5, before.assigned, {})
    at_target = member(partitions(t=[0]), epoch=6)
    assert step(at_target, partitions(t=[0, 1])) is at_target  # nothing is looked at before the target's epoch moves


def test_partitions_owned_by_others_are_assigned_after_their_release() -> None:
    taken = partitions(t=[2])
    after = step(member(partitions(t=[0])), partitions(t=[0, 1, 2]), taken=taken)
    assert outcome(after) == (UNRELEASED, 6, 5, partitions(t=[0, 1]), {})
    assert step(after, partitions(t=[0, 1, 2]), taken=taken) is after
    released = step(after, partitions(t=[0, 1, 2]))
    assert outcome(released) == (STABLE, 6, 5, partitions(t=[0, 1, 2]), {})


def test_epoch_does_not_advance_until_a_revocation_is_acknowledged() -> None:
    before = member(partitions(t=[0, 1, 2]))
    target = partitions(t=[0, 5])
    after = step(before, target)
    assert outcome(after) == (UNREVOKED, 5, 4, partitions(t=[0]), partitions(t=[1, 2]))
    assert step(after, target) is after  # saying nothing is no acknowledgement
    assert step(after, target, owned=partitions(t=[0, 1])) is after  # nor is giving up a part
    done = step(after, target, owned=partitions(t=[0]))
    assert outcome(done) == (STABLE, 6, 5, partitions(t=[0, 5]), {})


def test_already_revoked_partitions_need_no_acknowledgement() -> None:
    after = step(member(partitions(t=[0, 1])), partitions(t=[0]), owned=partitions(t=[0]))
    assert outcome(after) == (STABLE, 6, 5, partitions(t=[0]), {})


def test_new_target_during_a_revocation_causes_a_second_revocation() -> None:
    first = step(member(partitions(t=[0, 1, 2])), partitions(t=[0, 1]))
    assert first.revoking == partitions(t=[2])
    second = step(first, partitions(t=[0]), owned=partitions(t=[0, 1]))
    assert outcome(second) == (UNREVOKED, 6, 5, partitions(t=[0]), partitions(t=[1]))


def test_member_in_unknown_state_is_fenced_until_it_owns_nothing() -> None:
    before = dataclasses.replace(member(partitions(t=[0])), state=UNKNOWN)
    for owned in (None, partitions(t=[0])):
        with pytest.raises(KafkaError) as refused:
            step(before, ALL, owned=owned)
        assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert step(before, ALL, owned={}).assigned == ALL


def test_whole_topics_are_assigned_and_revoked() -> None:
    before = member(partitions(old=[0, 1], both=[0]))
    after = step(before, partitions(new=[3], both=[0]))
    assert (after.assigned, after.revoking) == (partitions(both=[0]), partitions(old=[0, 1]))
    done = step(after, partitions(new=[3], both=[0]), owned=partitions(both=[0]))
    assert done.assigned == partitions(new=[3], both=[0]) and topic_id("old") not in done.assigned
