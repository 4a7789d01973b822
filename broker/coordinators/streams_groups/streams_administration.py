"""Authorization of events in a streams group, its description, and the endpoints of its state.

A member commits at its epoch. At an older epoch it may still commit for tasks that it has had since then: it goes on
processing them until it learns of the new epoch. Source: KIP-1071; Kafka's StreamsGroup (validateOffsetCommit,
validateOffsetFetch, validateDeleteGroup, asDescribedGroup) and EndpointToPartitionsManager, 4.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from anabranch.broker.coordinators.classic_groups.group_events import Commit, Delete, Observe
from anabranch.broker.coordinators.consumer_groups.topics_view import TopicsView
from anabranch.broker.coordinators.streams_groups.configured_topology import Counts
from anabranch.broker.coordinators.streams_groups.streams_group import StreamsGroup
from anabranch.broker.coordinators.streams_groups.streams_member import StreamsMember
from anabranch.broker.coordinators.streams_groups.tasks import ACTIVE, STANDBY, WARMUP, Role, Tasks, in_role
from anabranch.protocol.apis import streams_group_describe as api
from anabranch.protocol.apis.streams_group_heartbeat import (
    Endpoint,
    EndpointToPartitions,
    KeyValue,
    TaskIds,
    TopicInfo,
    TopicPartition,
)
from anabranch.protocol.errors import ErrorCode, KafkaError

FIRST_COMMIT_WITH_EPOCHS: Final = 9
NO_MEMBER: Final = -1


def authorize(group: StreamsGroup, event: Commit | Observe | Delete) -> None:
    """Check an event against the group. Raises KafkaError."""
    match event:
        case Commit():
            authorize_commit(group, event)
        case Observe():
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.group_id} is a streams group")
        case Delete():
            if group.members:
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP, group.describe())


def authorize_commit(group: StreamsGroup, event: Commit) -> None:
    """Check that the sender may commit: a member for its tasks, or any client while there are no members.

    Raises UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH; ILLEGAL_GENERATION in transactions, whose clients
    know no other code.
    """
    if event.generation < 0 and not group.members:
        return
    anonymous = event.generation == NO_MEMBER and event.member_id == "" and event.instance_id is None
    if event.transactional and anonymous:
        return
    member = group.member(event.member_id)
    if not event.transactional and event.version < FIRST_COMMIT_WITH_EPOCHS:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "members of streams groups commit with version 9 or newer")
    if event.generation == member.epoch:
        return
    stale = ErrorCode.ILLEGAL_GENERATION if event.transactional else ErrorCode.STALE_MEMBER_EPOCH
    if event.generation > member.epoch or not event.partitions:
        raise KafkaError(stale, f"epoch {event.generation} is not the member's {member.epoch}")
    readers = group.sources()
    for topic, index in event.partitions:
        since = member.since.get((readers.get(topic, ""), index))
        if since is None or event.generation < since:
            raise KafkaError(stale, f"{topic}-{index} was not assigned to the member in epoch {event.generation}")


def authorize_fetch(group: StreamsGroup, member_id: str | None, epoch: int) -> None:
    """Check that the sender may read committed offsets: a member at its epoch, or a client that names no member."""
    if member_id is None and epoch < 0:
        return
    member = group.member(member_id or "")
    if epoch != member.epoch:
        raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH, f"epoch {epoch} is not the member's {member.epoch}")


# --- endpoints ---------------------------------------------------------------------------------------------------


def endpoints(group: StreamsGroup, topics: TopicsView) -> list[EndpointToPartitions]:
    """Return each instance with an endpoint, and the source partitions of its tasks."""
    return [
        EndpointToPartitions(
            user_endpoint=Endpoint(host=member.endpoint[0], port=member.endpoint[1]),
            active_partitions=_partitions(group, member.assigned, ACTIVE, topics),
            standby_partitions=_partitions(group, member.assigned, STANDBY, topics),
        )
        for member in group.members.values()
        if member.endpoint is not None
    ]


def _partitions(group: StreamsGroup, assigned: Tasks, role: Role, topics: TopicsView) -> list[TopicPartition]:
    known = {} if group.configured is None else group.configured.subtopologies
    rows = []
    for name, indexes in in_role(assigned, role):
        for topic_name in known[name].sources if name in known else ():
            topic = topics.find(topic_name)
            there = () if topic is None else topic.partitions
            rows.append(TopicPartition(topic=topic_name, partitions=[one for one in indexes if one in there]))
    return rows


# --- description -------------------------------------------------------------------------------------------------


def describe(group: StreamsGroup) -> api.DescribedGroup:
    """Describe the group for administrators."""
    return api.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group),
        members=[_member(group, member) for member in group.members.values()],
    )


def _topology(group: StreamsGroup) -> api.Topology | None:
    """Describe the topology, with partition counts once all topics exist."""
    topology = group.topology
    if topology is None:
        return None
    configured = group.configured
    known = configured.subtopologies if configured is not None and configured.ready else {}
    rows = []
    for subtopology in sorted(topology.subtopologies, key=lambda one: one.subtopology_id):
        counts = known[subtopology.subtopology_id].counts if subtopology.subtopology_id in known else {}
        rows.append(
            api.Subtopology(
                subtopology_id=subtopology.subtopology_id,
                source_topics=sorted(subtopology.source_topics),
                repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
                state_changelog_topics=_infos(subtopology.state_changelog_topics, counts),
                repartition_source_topics=_infos(subtopology.repartition_source_topics, counts),
            )
        )
    return api.Topology(epoch=topology.epoch, subtopologies=rows)


def _infos(infos: Iterable[TopicInfo], counts: Counts) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=one.name,
            partitions=counts.get(one.name, one.partitions),
            replication_factor=one.replication_factor,
            topic_configs=list(one.topic_configs),
        )
        for one in sorted(infos, key=lambda one: one.name)
    ]


def _member(group: StreamsGroup, member: StreamsMember) -> api.Member:
    endpoint = member.endpoint
    return api.Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[KeyValue(key=key, value=content) for key, content in member.client_tags],
        task_offsets=[],
        task_end_offsets=[],
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(group.target(member.member_id)),
        is_classic=False,
    )


def _assignment(assigned: Tasks) -> api.Assignment:
    active, standby, warmup = (
        [TaskIds(subtopology_id=name, partitions=indexes) for name, indexes in in_role(assigned, role)]
        for role in (ACTIVE, STANDBY, WARMUP)
    )
    return api.Assignment(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)
