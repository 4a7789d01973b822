"""The state machine of one replica in the controller: the table of its phases, and the handling of brokers' responses.

Kafka's ReplicaStateMachine. Deletion goes offline -> started -> successful -> non-existent; a replica whose broker is
down cannot be deleted and waits (ineligible) until it returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from anabranch.controller.model import ReplicaPhase, TopicPartition
from anabranch.controller.state import ClusterState

NON_EXISTENT, NEW, ONLINE, OFFLINE = (
    ReplicaPhase.NON_EXISTENT,
    ReplicaPhase.NEW,
    ReplicaPhase.ONLINE,
    ReplicaPhase.OFFLINE,
)
STARTED, SUCCESSFUL, INELIGIBLE = (
    ReplicaPhase.DELETION_STARTED,
    ReplicaPhase.DELETION_SUCCESSFUL,
    ReplicaPhase.DELETION_INELIGIBLE,
)

LEGAL: Final[Mapping[ReplicaPhase, frozenset[ReplicaPhase]]] = {
    # from          to
    NON_EXISTENT: frozenset({NEW}),
    NEW: frozenset({ONLINE, OFFLINE}),
    ONLINE: frozenset({ONLINE, OFFLINE}),
    OFFLINE: frozenset({ONLINE, OFFLINE, STARTED, INELIGIBLE}),
    STARTED: frozenset({SUCCESSFUL, INELIGIBLE}),
    SUCCESSFUL: frozenset({NON_EXISTENT}),
    INELIGIBLE: frozenset({ONLINE, OFFLINE}),
}


def move(state: ClusterState, partition: TopicPartition, replica: int, to: ReplicaPhase) -> None:
    """Change a replica's phase; a transition outside the table is a bug."""
    known = state.replica_phases.setdefault(partition, {})
    before = known.get(replica, NON_EXISTENT)
    assert to in LEGAL[before], f"{partition} on {replica}: {before.name} -> {to.name} is not a transition"
    known[replica] = to
    if to is NON_EXISTENT:
        del known[replica]


def forget(state: ClusterState, partition: TopicPartition, replica: int) -> None:
    """Forget a replica that was moved away: its broker is told once to delete it, and its response is ignored."""
    if state.replica_phase(partition, replica) is not NON_EXISTENT:
        for to in (OFFLINE, STARTED, SUCCESSFUL, NON_EXISTENT):
            move(state, partition, replica, to)


def set_online(state: ClusterState, partition: TopicPartition, replica: int) -> None:
    """Set a replica of an existing partition online or offline with its broker."""
    if state.replica_phase(partition, replica) is NON_EXISTENT:
        move(state, partition, replica, NEW)
    move(state, partition, replica, ONLINE if replica in state.brokers else OFFLINE)
