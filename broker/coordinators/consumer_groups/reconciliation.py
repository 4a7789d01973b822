"""The reconciliation of one member from its current assignment to its target, one heartbeat at a time.

    Stable               has all of the target of its epoch
    UnrevokedPartitions  has to revoke partitions; its epoch stays until it reports that it did
    UnreleasedPartitions has the target's epoch, and waits for partitions that others still have

It handles partitions of topics and tasks of streams groups (KIP-1071); only the check for free ones differs.

Invariant: a partition is added to a member only while no member has it, assigned or not revoked yet. A member's epoch
passes one that required a revocation only after the member has reported it.

Source: KIP-848; Kafka's CurrentAssignmentBuilder of 4.1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, cast

from anabranch.broker.coordinators.consumer_groups.assignment import NOTHING, overlap
from anabranch.broker.coordinators.consumer_groups.member import (
    STABLE,
    UNKNOWN,
    UNRELEASED,
    UNREVOKED,
    MemberState,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

Shares = Mapping[Any, frozenset[int]]
"""Partitions by topic id, or tasks by role and subtopology."""
FreeOf = Callable[[Any, frozenset[int]], frozenset[int]]
"""Returns those of a topic's partitions that no member has."""


class Reconciled(Protocol):
    """A member of any kind of group: a dataclass with these fields."""

    @property
    def state(self) -> MemberState:
        """The reconciliation state."""

    @property
    def epoch(self) -> int:
        """The member epoch."""

    @property
    def previous_epoch(self) -> int:
        """The member epoch before the last change."""

    @property
    def assigned(self) -> Shares:
        """The assigned partitions."""

    @property
    def revoking(self) -> Shares:
        """The partitions to revoke."""


AnyMember = TypeVar("AnyMember", bound=Reconciled)


def reconcile(
    member: AnyMember, *, target: Shares, target_epoch: int, owned: Shares | None, free_of: FreeOf
) -> AnyMember:
    """Reconcile a member by one step towards its target; return the same object if no step is possible.

    `owned` are the partitions that the member reports; None: none reported, so it may still have all. Raises
    FENCED_MEMBER_EPOCH if its state is unknown and it may have partitions.
    """
    if member.state is STABLE:
        if member.epoch == target_epoch:
            return member
        return _step(member, member.epoch, target, target_epoch, owned, free_of)
    if member.state is UNREVOKED:
        if owned is None or overlap(owned, member.revoking):
            return member
        return _step(member, min(member.epoch + 1, target_epoch), target, target_epoch, owned, free_of)
    if member.state is UNKNOWN:
        if owned is None or owned:
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "the member is in an unknown state: it must rejoin")
        return _step(member, target_epoch, target, target_epoch, owned, free_of)
    return _step(member, member.epoch, target, target_epoch, owned, free_of)


def _step(
    member: AnyMember, epoch: int, target: Shares, target_epoch: int, owned: Shares | None, free_of: FreeOf
) -> AnyMember:
    kept: dict[Any, frozenset[int]] = {}
    revoking: dict[Any, frozenset[int]] = {}
    added: dict[Any, frozenset[int]] = {}
    waits = False
    for topic_id in target.keys() | member.assigned.keys():
        has = member.assigned.get(topic_id, frozenset())
        target_partitions = target.get(topic_id, frozenset())
        keeps = has & target_partitions
        free = free_of(topic_id, target_partitions - keeps)
        waits = waits or len(keeps) + len(free) < len(target_partitions)
        for place, partitions in ((kept, keeps), (revoking, has - keeps), (added, free)):
            if partitions:
                place[topic_id] = partitions
    if revoking and (owned is None or overlap(owned, revoking)):
        return _moved(member, state=UNREVOKED, epoch=epoch, assigned=kept, revoking=revoking)
    for topic_id, partitions in added.items():
        kept[topic_id] = kept.get(topic_id, frozenset()) | partitions
    return _moved(member, state=UNRELEASED if waits else STABLE, epoch=target_epoch, assigned=kept, revoking=NOTHING)


def _moved(member: AnyMember, *, state: MemberState, epoch: int, assigned: Shares, revoking: Shares) -> AnyMember:
    """Return the member with these values and its previous epoch; the same object if nothing changed."""
    if (state, epoch, assigned, revoking) == (member.state, member.epoch, member.assigned, member.revoking):
        return member
    before = member.epoch if epoch != member.epoch else member.previous_epoch
    moved = dataclasses.replace(
        cast(Any, member), state=state, epoch=epoch, previous_epoch=before, assigned=assigned, revoking=revoking
    )
    return cast(AnyMember, moved)
