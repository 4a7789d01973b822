"""The partition assignor of Streams: `stream` on the wire, one object per thread, compatible with Kafka's instances.

It builds the member's subscription, leads the group, and handles the leader's assignment. A leader needs more than
metadata: internal topics with the right number of partitions, and the ends of changelogs. `LeaderTools` provides those;
pure functions make all decisions (`partition_grouper`, `group_assignment`).

Version probing: a member starts with its newest version. If the leader answers with an older one, or reports that all
members support a newer one, the member takes the common version and rejoins at once. Source: StreamsPartitionAssignor
of Kafka Streams; KIP-429, KIP-441.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from anabranch.clients.consumer.consumer_partition_assignor import (
    REJOIN_NOW,
    MemberAssignment,
    MemberView,
    PartitionAssignor,
    RebalanceProtocol,
)
from anabranch.clients.metadata import ClusterMetadata
from anabranch.clients.streams.assignment_info import (
    AssignmentInfo,
    AssignorError,
    Host,
    Hosted,
    decode_assignment_info,
)
from anabranch.clients.streams.group import EARLIEST_PROBEABLE_VERSION, Group
from anabranch.clients.streams.group_assignment import GroupAssignment, assign_group, refuse_group
from anabranch.clients.streams.high_availability_task_assignor import assign_highly_available
from anabranch.clients.streams.partition_grouper import (
    MissingSourceTopic,
    Partitions,
    SubtopologyTopics,
    TaskAssignmentError,
    changelog_counts,
    changelogs_of_tasks,
    partitions_of_tasks,
    removed_tasks,
    repartition_counts,
)
from anabranch.clients.streams.subscription_info import SubscriptionInfo, encode_subscription_info
from anabranch.clients.streams.task_assignor import AssignorConfig, TaskAssignor
from anabranch.clients.streams.task_id import TaskId
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.streams_protocol import LATEST_VERSION, NO_REBALANCE_MS, UNKNOWN_VERSION
from anabranch.protocol.topic_partition import TopicPartition
from anabranch.protocol.values import value

STREAM: Final = "stream"

log = logging.getLogger(__name__)


class LeaderTools(Protocol):
    """The cluster operations that only a group's leader needs."""

    async def prepare_topics(self, counts: Mapping[str, int]) -> Collection[str]:
        """Ensure that internal topics exist with these partitions; return those that were created."""

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        """Return the ends of changelog partitions (for source topics: of committed records); None if unavailable."""


@value(kw_only=True)
class AssignedTasks:
    """The tasks of this member."""

    active: Mapping[TaskId, Sequence[TopicPartition]] = dataclasses.field(default_factory=dict)
    standby: Mapping[TaskId, Collection[TopicPartition]] = dataclasses.field(default_factory=dict)
    """Standby and warm-up tasks, with the source partitions of each."""
    removed: Collection[TaskId] = ()
    """Tasks of removed partitions to finish."""
    partitions_by_host: Hosted = dataclasses.field(default_factory=dict)
    standby_partitions_by_host: Hosted = dataclasses.field(default_factory=dict)
    error: AssignorError = AssignorError.NONE
    generation: int = -1


@value(kw_only=True)
class StreamsMember:
    """The process of a thread."""

    process_id: bytes
    """The same for all threads of a process, kept over restarts with the state."""
    end_point: str = ""
    """`host:port` for queries of this process's state; empty for none."""
    tags: Mapping[str, str] = dataclasses.field(default_factory=dict)
    latest_version: int = LATEST_VERSION
    """The newest version to send, and to read as a leader."""


class StreamsPartitionAssignor(PartitionAssignor):
    """The assignor of one thread of the application, which is one member of the group."""

    name = STREAM
    protocols = frozenset(RebalanceProtocol)

    def __init__(
        self,
        member: StreamsMember,
        topology: SubtopologyTopics,
        tools: LeaderTools,
        *,
        offset_sums: Callable[[], Mapping[TaskId, int]],
        on_tasks: Callable[[AssignedTasks], None],
        now_ms: Callable[[], int],
        assignor: TaskAssignor = assign_highly_available,
        config: AssignorConfig | None = None,
    ) -> None:
        """Create an assignor; joins call `offset_sums`, and syncs `on_tasks`; `now_ms` is the time of day."""
        self._member = member
        self._topology = topology
        self._tools = tools
        self._offset_sums = offset_sums
        self._on_tasks = on_tasks
        self._now_ms = now_ms
        self._assignor = assignor
        self._config = config or AssignorConfig()
        self._unique_field = 0
        self.used_version = member.latest_version
        self.error = AssignorError.NONE
        """The leader's error; set it to SHUTDOWN_REQUESTED and rejoin to stop the whole application."""
        self.last_led: GroupAssignment | None = None
        """This member's last decision as leader."""

    def subscription_user_data(self, topics: Collection[str]) -> bytes:
        """Return this member's identity and the progress of its state.

        Never the same bytes twice, so that a join is a rebalance.
        """
        self._unique_field = (self._unique_field + 1) % 128
        version = self.used_version
        return encode_subscription_info(
            SubscriptionInfo(
                version=version,
                latest_supported_version=(
                    UNKNOWN_VERSION if version < EARLIEST_PROBEABLE_VERSION else self._member.latest_version
                ),
                process_id=self._member.process_id,
                user_end_point=self._member.end_point,
                task_offset_sums=self._offset_sums(),
                unique_field=self._unique_field,
                error_code=self.error,
                client_tags=self._member.tags,
            )
        )

    async def assign(self, metadata: ClusterMetadata, members: Sequence[MemberView]) -> Mapping[str, MemberAssignment]:
        """Assign as leader: the tasks of every member, or the same error for every member."""
        try:
            led = await self._lead(metadata, members)
        except MissingSourceTopic as error:
            log.error("no assignment: %s", error)
            led = self._refuse(members, AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA)
        except (TaskAssignmentError, DecodeError) as error:
            log.error("no assignment: %s", error)
            led = self._refuse(members, AssignorError.ASSIGNMENT_ERROR)
        self.last_led = led
        return led.members

    def _refuse(self, members: Sequence[MemberView], code: AssignorError) -> GroupAssignment:
        return refuse_group(members, code, self._member.latest_version)

    async def _lead(self, metadata: ClusterMetadata, members: Sequence[MemberView]) -> GroupAssignment:
        group = Group(members, self._member.latest_version)
        if group.shutdown_requested:
            return self._refuse(members, AssignorError.SHUTDOWN_REQUESTED)
        group.check_versions()
        partitions: dict[str, Collection[int]] = {
            name: topic.partitions.keys() for name, topic in metadata.topics.items() if topic.partitions
        }
        lineages = {name: one.lineage for name, one in metadata.topics.items() if one.lineage is not None and one.gated}
        repartition = repartition_counts(self._topology, partitions, lineages)
        if repartition:
            await self._tools.prepare_topics(repartition)
        tasks = partitions_of_tasks(self._topology, with_counts(partitions, repartition))
        changelogs = changelogs_of_tasks(self._topology, tasks)
        end_offsets = await self._end_offsets(changelogs)
        return assign_group(
            group,
            self._member.process_id,
            tasks,
            changelogs,
            end_offsets,
            self._assignor,
            self._config,
            self._now_ms(),
            racks_of(metadata) if self._config.rack_aware_assignment_strategy != "none" else None,
            removed_tasks(self._topology, metadata.topics, group.owned),
        )

    async def _end_offsets(
        self, changelogs: Mapping[TaskId, Sequence[TopicPartition]]
    ) -> Mapping[TopicPartition, int] | None:
        """Return the ends of all existing changelog partitions; those of new ones are 0."""
        sources = {topic for part in self._topology for topic in part.source_topics}
        counts = {topic: count for topic, count in changelog_counts(changelogs).items() if topic not in sources}
        made = frozenset(await self._tools.prepare_topics(counts)) if counts else frozenset()
        there = [one for partitions in changelogs.values() for one in partitions if one.topic not in made]
        return await self._tools.end_offsets(there) if there else {}

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> int | None:
        """Handle the assignment; return when to rejoin. Raises DecodeError, TaskAssignmentError for an invalid one."""
        info = decode_assignment_info(assignment.user_data or b"")
        if info.error_code != AssignorError.NONE:
            self.error = AssignorError(info.error_code)
            self._on_tasks(AssignedTasks(error=self.error, generation=generation))
            return None
        self._check_versions(info)
        try:
            active = info.partitions_of_tasks(assignment.partitions)
        except ValueError as error:
            raise TaskAssignmentError(str(error)) from None
        self._on_tasks(
            AssignedTasks(
                active=active,
                standby={task: partitions for task, partitions in info.standby_tasks.items() if partitions},
                removed=frozenset(task for task, partitions in info.standby_tasks.items() if not partitions),
                partitions_by_host=info.partitions_by_host,
                standby_partitions_by_host=info.standby_partitions_by_host,
                generation=generation,
            )
        )
        return self._next_join(info)

    def _check_versions(self, info: AssignmentInfo) -> None:
        latest = self._member.latest_version
        if info.version > self.used_version:
            raise TaskAssignmentError(f"the leader used version {self.used_version} with {info.version}")
        if info.commonly_supported_version > latest:
            raise TaskAssignmentError(
                f"the leader announced that all members support version {info.commonly_supported_version}, but this "
                f"member supports up to {latest}"
            )

    def _next_join(self, info: AssignmentInfo) -> int | None:
        """Return the next join: for a version change, an end point unknown to the group, or the leader's request."""
        if self._change_version(info):
            return REJOIN_NOW
        own = Host.parse(self._member.end_point)
        if own is not None and info.partitions_by_host and own not in info.partitions_by_host:
            return REJOIN_NOW  # a static member that moved was assigned its previous tasks (KIP-345)
        return None if info.next_rebalance_ms == NO_REBALANCE_MS else info.next_rebalance_ms

    def _change_version(self, info: AssignmentInfo) -> bool:
        if info.version < EARLIEST_PROBEABLE_VERSION:
            return False
        if info.commonly_supported_version <= self.used_version and info.version >= self.used_version:
            return False
        log.info(
            "changing from version %d to %d: the leader used %d",
            self.used_version,
            info.commonly_supported_version,
            info.version,
        )
        self.used_version = info.commonly_supported_version
        return True


def racks_of(metadata: ClusterMetadata) -> dict[TopicPartition, frozenset[str]]:
    """Return the racks of each partition's replicas; none if one is unknown."""
    racks: dict[TopicPartition, frozenset[str]] = {}
    for name, topic in metadata.topics.items():
        for index, partition in topic.partitions.items():
            nodes = [metadata.nodes.get(broker) for broker in partition.replicas]
            known = frozenset(node.rack for node in nodes if node is not None and node.rack)
            unknown = any(node is None or not node.rack for node in nodes)
            racks[TopicPartition(name, index)] = frozenset() if unknown else known
    return racks


def with_counts(partitions: Partitions, counts: Mapping[str, int]) -> dict[str, Collection[int]]:
    """Return the partitions after missing internal topics are created; existing ones stay."""
    return {**partitions, **{topic: range(count) for topic, count in counts.items() if topic not in partitions}}
