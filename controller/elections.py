"""Elects the leader of a partition, by pure functions of its assignment, its ISR and the live brokers.

Kafka's strategies (`PartitionLeaderElectionAlgorithms`): offline, reassignment, preferred, controlled shutdown. None
means that the strategy has no answer and nothing may be changed.

Invariant: a leader is a member of its ISR, and an ISR never becomes empty: when none of its members is alive it stays
as it was, because its members, and no other replicas, are known to have every committed record.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from anabranch.protocol.values import value

NO_LEADER = -1
RECOVERED = 0
RECOVERING = 1


@value
class Elected:
    """The outcome of an election: leader and ISR, and whether committed records may be lost (RECOVERING)."""

    leader: int
    isr: tuple[int, ...]
    recovery_state: int = RECOVERED


def first_leader(assignment: Sequence[int], live: Collection[int]) -> Elected | None:
    """Elect a new partition's leader: the first live replica; all live replicas are in sync with its empty log."""
    alive = tuple(replica for replica in assignment if replica in live)
    return Elected(alive[0], alive) if alive else None


def elect_offline_leader(
    assignment: Sequence[int], isr: Sequence[int], live: Collection[int], *, unclean: bool
) -> Elected | None:
    """Replace a dead leader with the first live in-sync replica; otherwise, if `unclean`, any live one."""
    in_sync = tuple(replica for replica in isr if replica in live)
    for replica in assignment:
        if replica in in_sync:
            return Elected(replica, in_sync)
    if unclean:
        for replica in assignment:
            if replica in live:
                return Elected(replica, (replica,), RECOVERING)
    return None


def elect_preferred_leader(assignment: Sequence[int], isr: Sequence[int], live: Collection[int]) -> Elected | None:
    """Elect the first replica of the assignment, if it is alive and in sync."""
    first = assignment[0] if assignment else NO_LEADER
    return Elected(first, tuple(isr)) if first in live and first in isr else None


def elect_reassigned_leader(
    target: Sequence[int], leader: int, isr: Sequence[int], live: Collection[int]
) -> Elected | None:
    """Elect among the target replicas, once all are in sync: the leader stays if it is one of them and alive.

    The same write removes the other replicas from the ISR: they may delete their logs from then on.
    """
    staying = tuple(replica for replica in isr if replica in target)
    for replica in (leader, *target):
        if replica in staying and replica in live:
            return Elected(replica, staying)
    return None


def elect_for_shutdown(
    assignment: Sequence[int], isr: Sequence[int], live: Collection[int], leaving: Collection[int]
) -> Elected | None:
    """Move leadership off brokers that are shutting down, and remove them from the ISR, while they still serve."""
    staying = tuple(replica for replica in isr if replica not in leaving)
    for replica in assignment:
        if replica in staying and replica in live:
            return Elected(replica, staying)
    return None


def without_replica(leader: int, isr: Sequence[int], gone: Collection[int]) -> Elected:
    """Return leader and ISR after these brokers failed, before any election."""
    remaining = tuple(replica for replica in isr if replica not in gone)
    return Elected(NO_LEADER if leader in gone else leader, remaining or tuple(isr))
