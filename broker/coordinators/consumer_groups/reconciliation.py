"""How one member gets from what it has to what it is to have, one heartbeat after the other.

    Stable               has all of the target of its epoch
    UnrevokedPartitions  has been told to give partitions up; its epoch stands still until it says that it did
    UnreleasedPartitions is at the target's epoch, and waits for partitions that others still have

Invariant: a partition is added to a member only while no member has it, as assigned or as not given up yet; and a
member's epoch moves past one in which it had to give something up only after it said that it did.

Source: KIP-848; Kafka's CurrentAssignmentBuilder of 4.1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from anabranch.broker.coordinators.consumer_groups.assignment import NOTHING, Assignment, overlap
from anabranch.broker.coordinators.consumer_groups.member import (
    STABLE,
    UNKNOWN,
    UNRELEASED,
    UNREVOKED,
    Member,
    MemberState,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

IsFree = Callable[[bytes, int], bool]
"""Whether no member has a partition."""


def reconcile(
    member: Member, *, target: Assignment, target_epoch: int, owned: Assignment | None, is_free: IsFree
) -> Member:
    """The member after one step towards its target; the same object if there is none to make now.

    `owned` is what the member says it has; None: it said nothing, and so may still have everything.
    Raises FENCED_MEMBER_EPOCH if it is in a state of newer software and may have partitions.
    """
    if member.state is STABLE:
        if member.epoch == target_epoch:
            return member
        return _step(member, member.epoch, target, target_epoch, owned, is_free)
    if member.state is UNREVOKED:
        if owned is None or overlap(owned, member.revoking):
            return member
        return _step(member, min(member.epoch + 1, target_epoch), target, target_epoch, owned, is_free)
    if member.state is UNKNOWN:
        if owned is None or owned:
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "the member is in an unknown state: it has to join anew")
        return _step(member, target_epoch, target, target_epoch, owned, is_free)
    return _step(member, member.epoch, target, target_epoch, owned, is_free)


def _step(
    member: Member, epoch: int, target: Assignment, target_epoch: int, owned: Assignment | None, is_free: IsFree
) -> Member:
    kept: dict[bytes, frozenset[int]] = {}
    revoking: dict[bytes, frozenset[int]] = {}
    added: dict[bytes, frozenset[int]] = {}
    waits = False
    for topic_id in target.keys() | member.assigned.keys():
        has = member.assigned.get(topic_id, frozenset())
        wanted = target.get(topic_id, frozenset())
        keeps = has & wanted
        free = frozenset(one for one in wanted - keeps if is_free(topic_id, one))
        waits = waits or len(keeps) + len(free) < len(wanted)
        for place, partitions in ((kept, keeps), (revoking, has - keeps), (added, free)):
            if partitions:
                place[topic_id] = partitions
    if revoking and (owned is None or overlap(owned, revoking)):
        return _moved(member, state=UNREVOKED, epoch=epoch, assigned=kept, revoking=revoking)
    for topic_id, partitions in added.items():
        kept[topic_id] = kept.get(topic_id, frozenset()) | partitions
    return _moved(member, state=UNRELEASED if waits else STABLE, epoch=target_epoch, assigned=kept, revoking=NOTHING)


def _moved(member: Member, *, state: MemberState, epoch: int, assigned: Assignment, revoking: Assignment) -> Member:
    """The member with these; the same object if nothing is new, and its last epoch remembered if that is."""
    if (state, epoch, assigned, revoking) == (member.state, member.epoch, member.assigned, member.revoking):
        return member
    before = member.epoch if epoch != member.epoch else member.previous_epoch
    return dataclasses.replace(
        member, state=state, epoch=epoch, previous_epoch=before, assigned=assigned, revoking=revoking
    )
