"""A decision about a streams group: its records, and the response to a member.

It changes nothing by itself. Its records are written as one batch. When they are in the log the group applies them and
sets its timers; the response waits until they are replicated. Source: KIP-1071; Kafka's GroupMetadataManager, 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from anabranch.broker.coordinators.consumer_groups.timers import Timer
from anabranch.broker.coordinators.consumer_groups.topics_view import NO_TOPICS, TopicsView
from anabranch.broker.coordinators.streams_groups import tasks
from anabranch.broker.coordinators.streams_groups.streams_group import StreamsGroup
from anabranch.broker.coordinators.streams_groups.streams_settings import StreamsSettings
from anabranch.broker.coordinators.streams_groups.tasks import ACTIVE, STANDBY, WARMUP, Tasks
from anabranch.protocol import streams_group_records as records
from anabranch.protocol.apis.streams_group_heartbeat import KeyValue, TopicInfo
from anabranch.protocol.group_records import Record
from anabranch.protocol.values import slotted, value


@value(kw_only=True)
class StreamsAnswer:
    """The content of a heartbeat response."""

    member_id: str
    epoch: int
    interval_ms: int = 0
    assigned: Tasks | None = None
    """None: unchanged."""
    status: tuple[tuple[int, str], ...] = ()
    """(code, detail)"""
    endpoint_epoch: int = 0
    """The version of the group's endpoint information."""
    include_endpoints: bool = False
    """Whether the member has an older version of the endpoint information."""


@slotted
class StreamsDecision:
    """A decision about a streams group at one time; its records take effect when they are in the log."""

    group: StreamsGroup
    topics: TopicsView = NO_TOPICS
    settings: StreamsSettings = field(default_factory=StreamsSettings)
    now_ms: int = 0
    records: list[Record] = field(default_factory=list)
    then: list[Callable[[], None]] = field(default_factory=list)
    answer: Any = None
    missing: tuple[tuple[TopicInfo, int], ...] = ()
    """Internal topics to create, each with its partition count."""

    def write(self, key: Any, content: Any) -> None:
        """Append a record; None as content deletes the key."""
        self.records.append((key, content))

    def write_epoch(self, epoch: int, hashed: int, validated: int, configs: Mapping[str, str]) -> None:
        """Write the group epoch with the metadata, topology and settings that it is for."""
        content = records.StreamsGroupMetadataValue(
            epoch=epoch,
            metadata_hash=hashed,
            validated_topology_epoch=validated,
            last_assignment_configs=[KeyValue(key=key, value=text) for key, text in configs.items()],
        )
        self.write(records.StreamsGroupMetadataKey(group_id=self.group.group_id), content)

    def write_target(self, member_id: str, target: Tasks) -> None:
        """Write a member's target assignment."""
        content = records.StreamsGroupTargetAssignmentMemberValue(
            active_tasks=tasks.to_rows(target, ACTIVE),
            standby_tasks=tasks.to_rows(target, STANDBY),
            warmup_tasks=tasks.to_rows(target, WARMUP),
        )
        self.write(
            records.StreamsGroupTargetAssignmentMemberKey(group_id=self.group.group_id, member_id=member_id), content
        )

    def delete_member(self, member_id: str) -> None:
        """Delete all records of a member."""
        group_id = self.group.group_id
        self.write(records.StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)
        self.write(records.StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)
        self.write(records.StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)

    def set_timer(self, member_id: str, timer: Timer, after_ms: int) -> None:
        """Set a timer to expire after `after_ms`."""
        due_ms = self.now_ms + after_ms
        self.then.append(lambda: self.group.timers.set(member_id, timer, due_ms))

    def cancel_timer(self, member_id: str, timer: Timer) -> None:
        """Stop a timer."""
        self.then.append(lambda: self.group.timers.cancel(member_id, timer))
