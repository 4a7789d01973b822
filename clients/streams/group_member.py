"""An instance as a group member: its assignor, with the tools of a leader."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence

from anabranch.clients.clock import time_of_day_clock
from anabranch.clients.consumer.consumer_partition_assignor import MemberAssignment, MemberView, RebalanceProtocol
from anabranch.clients.metadata import ClusterMetadata
from anabranch.clients.streams.changelog_reader import ChangelogReader
from anabranch.clients.streams.config import StreamsConfig
from anabranch.clients.streams.high_availability_task_assignor import assign_highly_available
from anabranch.clients.streams.internal_topic_manager import InternalTopicManager, topics_of
from anabranch.clients.streams.sticky_task_assignor import assign_sticky
from anabranch.clients.streams.streams_partition_assignor import AssignedTasks, StreamsMember, StreamsPartitionAssignor
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.topology_graph import Built
from anabranch.protocol.topic_partition import TopicPartition


class EagerStreamsAssignor(StreamsPartitionAssignor):
    """Revokes all tasks before each rebalance, as Kafka Streams did before 2.4.

    Offset sums show the members' previous tasks. No member waits for another, because none owns any task.
    """

    protocols = frozenset({RebalanceProtocol.EAGER})

    async def assign(self, metadata: ClusterMetadata, members: Sequence[MemberView]) -> Mapping[str, MemberAssignment]:
        """Lead a group whose members have revoked all tasks."""
        return await super().assign(metadata, [dataclasses.replace(member, owned=()) for member in members])


class Leading:
    """The cluster operations that only the group's leader needs (`LeaderTools`)."""

    def __init__(self, topics: InternalTopicManager, reader: ChangelogReader) -> None:
        self._topics = topics
        self._reader = reader

    async def prepare_topics(self, counts: Mapping[str, int]) -> Collection[str]:
        """Create internal topics, or add partitions; return the new topics."""
        return [topic for topic, count in counts.items() if await self._topics.prepare(topic, count)]

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        """Return the current ends of changelogs; None when a leader does not answer."""
        try:
            return await self._reader.ends(partitions)
        except (ConnectionError, TimeoutError):
            return None


def make_assignor(
    config: StreamsConfig,
    built: Built,
    process_id: bytes,
    leading: Leading,
    *,
    offset_sums: Callable[[], Mapping[TaskId, int]],
    on_tasks: Callable[[AssignedTasks], None],
    clock_ms: Callable[[], int] | None,
) -> StreamsPartitionAssignor:
    """Create the assignor of one instance."""
    kind = EagerStreamsAssignor if config.rebalance_protocol == "eager" else StreamsPartitionAssignor
    return kind(
        StreamsMember(process_id=process_id, end_point=config.application_server, tags=config.client_tags),
        topics_of(built, config.application_id),
        leading,
        offset_sums=offset_sums,
        on_tasks=on_tasks,
        now_ms=clock_ms or time_of_day_clock(),
        assignor=assign_sticky if config.task_assignor == "sticky" else assign_highly_available,
        config=config.make_assignor_config(),
    )
