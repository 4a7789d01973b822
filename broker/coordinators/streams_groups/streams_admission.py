"""Validation of streams group heartbeats: the request itself, the member's epoch, and its tasks.

Source: KIP-1071; Kafka's GroupCoordinatorService (validation) and GroupMetadataManager (epochs, tasks), 4.2.
"""

from __future__ import annotations

from anabranch.broker.coordinators.consumer_groups.assignment import within
from anabranch.broker.coordinators.consumer_groups.member import JOIN_EPOCH, STATIC_LEAVE
from anabranch.broker.coordinators.streams_groups import tasks
from anabranch.broker.coordinators.streams_groups.configured_topology import ConfiguredTopology, check_topology
from anabranch.broker.coordinators.streams_groups.streams_member import StreamsMember
from anabranch.broker.coordinators.streams_groups.tasks import NO_TASKS, Tasks
from anabranch.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from anabranch.protocol.errors import ErrorCode, KafkaError


def check_request(request: StreamsGroupHeartbeatRequest) -> None:
    """Validate a request independently of its group. Raises INVALID_REQUEST or STREAMS_INVALID_TOPOLOGY."""
    epoch, topology = request.member_epoch, request.topology
    subtopologies = () if topology is None else topology.subtopologies
    owned = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    demands = [
        (request.instance_id is None, "InstanceId: streams groups do not support static members yet."),
        (request.task_offsets is None, "TaskOffsets are not supported yet."),
        (request.task_end_offsets is None, "TaskEndOffsets are not supported yet."),
        (not request.warmup_tasks, "WarmupTasks are not supported yet."),
        (not any(one.source_topic_regex for one in subtopologies), "SourceTopicRegex is not supported yet."),
        (request.member_id != "", "MemberId is empty."),
        (request.group_id != "", "GroupId is empty."),
        (request.rack_id != "", "RackId is empty."),
        (None not in owned or not any(one is not None for one in owned), "One list of tasks is null, another is not."),
    ]
    if epoch == JOIN_EPOCH:
        demands += [
            (request.rebalance_timeout_ms != -1, "A joining member must set RebalanceTimeoutMs."),
            (not any(owned), "A joining member must send no tasks."),
            (topology is not None, "A joining member must send its topology."),
        ]
    else:
        demands += [
            (epoch > STATIC_LEAVE, f"MemberEpoch {epoch} is invalid."),
            (topology is None, "Only a joining member sends a topology."),
        ]
    for met, message in demands:
        _demand(met, message)
    check_topology(subtopologies)


def check_epoch(member: StreamsMember, epoch: int, owned: Tasks | None) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the epoch is 0 (joining), current, or the last one after a lost response."""
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    lost_answer = epoch == member.previous_epoch and owned is not None and within(owned, member.assigned)
    if epoch > member.epoch or not lost_answer:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"epoch {epoch} is not the member's {member.epoch}: it must abandon its tasks and rejoin",
        )


def check_tasks(owned: Tasks | None, member: StreamsMember, configured: ConfiguredTopology) -> None:
    """Raise INVALID_REQUEST for tasks that neither the topology nor the member has."""
    for role, name, index in tasks.each(owned or NO_TASKS):
        if any(index in given.get((role, name), ()) for given in (member.assigned, member.revoking)):
            continue  # a topic may have shrunk since the member's last heartbeat
        known = configured.subtopologies.get(name)
        count = 0 if known is None else known.task_count
        _demand(0 <= index < count, f"There is no task {name}_{index}: that subtopology has {count}.")


def _demand(met: bool, message: str) -> None:
    if not met:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
