"""The replica state table: all pairs, compared with Kafka's valid previous states."""

from __future__ import annotations

import itertools

import pytest

from anabranch.controller import replicas
from anabranch.controller.model import ReplicaPhase, TopicPartition
from anabranch.controller.settings import ControllerSettings
from anabranch.controller.state import ClusterState
from tests.cases import for_each

R = ReplicaPhase
KAFKA_PREDECESSORS = {
    R.NEW: {R.NON_EXISTENT},
    R.ONLINE: {R.NEW, R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE},
    R.OFFLINE: {R.NEW, R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE},
    R.DELETION_STARTED: {R.OFFLINE},
    R.DELETION_SUCCESSFUL: {R.DELETION_STARTED},
    R.DELETION_INELIGIBLE: {R.OFFLINE, R.DELETION_STARTED},
    R.NON_EXISTENT: {R.DELETION_SUCCESSFUL},
}
T0 = TopicPartition("t", 0)


@for_each(itertools.product(R, R))
def test_phase_transitions_are_those_of_kafka(before: R, after: R) -> None:
    state = ClusterState(ControllerSettings(node_id=1), 1)
    if before is not R.NON_EXISTENT:
        state.replica_phases[T0] = {1: before}
    if before in KAFKA_PREDECESSORS[after]:
        replicas.move(state, T0, 1, after)
        assert state.replica_phase(T0, 1) is after
    else:
        with pytest.raises(AssertionError):
            replicas.move(state, T0, 1, after)


def test_replica_is_offline_without_its_broker() -> None:
    state = ClusterState(ControllerSettings(node_id=1), 1)
    replicas.set_online(state, T0, 1)
    assert state.replica_phase(T0, 1) is R.OFFLINE
