"""The group as its leader sees it: the members' subscriptions, grouped by process.

Members of a newer version send only their versions. Together they count as one client, which gets its share like any
other; their owned partitions are known from the consumer protocol. The leader can only answer them if every member's
version supports this (version probing).

Source: StreamsPartitionAssignor, ClientState of Kafka Streams.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from anabranch.clients.consumer.consumer_partition_assignor import MemberView
from anabranch.clients.streams.assignment_info import Host
from anabranch.clients.streams.partition_grouper import TaskAssignmentError
from anabranch.clients.streams.subscription_info import (
    RUNNING,
    SHUTDOWN_REQUESTED,
    UNKNOWN_SUM,
    SubscriptionInfo,
    decode_subscription_info,
)
from anabranch.clients.streams.task_assignor import Client
from anabranch.clients.streams.task_id import TaskId
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.streams_protocol import LATEST_VERSION
from anabranch.protocol.topic_partition import TopicPartition

EARLIEST_PROBEABLE_VERSION: Final = 3
FUTURE_PROCESS: Final = b"\xff" * 16
"""The process id for all unreadable subscriptions."""
LAG_MAX: Final = 2**63 - 1

log = logging.getLogger(__name__)


class StreamsProcess:
    """One process of the application: its members, which are its threads, and their previous tasks."""

    def __init__(self, process_id: bytes, info: SubscriptionInfo) -> None:
        self.process_id = process_id
        self.host = _host(info.user_end_point)
        self.tags = info.client_tags
        self.sums_by_member: dict[str, Mapping[TaskId, int]] = {}
        self.owner: dict[TopicPartition, str] = {}
        """Partition -> the member that owns it."""
        self._racks: set[str | None] = set()

    def add(self, member: MemberView, info: SubscriptionInfo) -> None:
        """Add a member."""
        self.sums_by_member[member.member_id] = info.task_offset_sums
        self.owner |= dict.fromkeys(member.owned, member.member_id)
        self._racks.add(member.rack)

    def client(self, task_of: Mapping[TopicPartition, TaskId], end_sums: Mapping[TaskId, int]) -> Client:
        """Return the process as a client for task assignors."""
        sums: dict[TaskId, int] = {}
        for offset_sums in self.sums_by_member.values():
            sums |= offset_sums
        active = {task_of[partition] for partition in self.owner if partition in task_of}
        active |= {task for task, offset_sum in sums.items() if offset_sum == RUNNING}
        return Client(
            process_id=self.process_id,
            capacity=len(self.sums_by_member),
            previous_active=frozenset(active),
            previous_standby=frozenset(sums.keys() - active),
            lags={task: lag_of(sums.get(task, 0), end_sum) for task, end_sum in end_sums.items()},
            tags=self.tags,
            rack=next(iter(self._racks)) or "" if len(self._racks) == 1 else "",
        )

    def had(self, client: Client) -> dict[str, list[TaskId]]:
        """Return the stateful tasks of each member: running ones, then those with the least lag.

        Kafka sorts unknown lags before running tasks; in groups of old versions, which have no others, two threads of
        one process then exchange a task for ever.
        """
        return {
            member_id: sorted(
                sums.keys() & client.lags.keys(),
                key=lambda task: (client.lags[task] != RUNNING, client.lags[task], task),
            )
            for member_id, sums in self.sums_by_member.items()
        }


class Group:
    """All members of a group, their subscriptions decoded and grouped by process."""

    def __init__(self, members: Sequence[MemberView], latest_version: int = LATEST_VERSION) -> None:
        """Decode all subscriptions. Raises DecodeError for an invalid one."""
        self._latest_version = latest_version
        self.processes: dict[bytes, StreamsProcess] = {}
        self.version = self.commonly_supported_version = latest_version
        self.shutdown_requested = False
        self.owned: set[TopicPartition] = set()
        self.from_the_future = 0
        for member in sorted(members, key=lambda one: one.member_id):
            self._add(member, _decode(member))

    def check_versions(self) -> None:
        """Raise TaskAssignmentError if one member has a newer version, and another would not understand the answer."""
        if self.from_the_future and self.version < EARLIEST_PROBEABLE_VERSION:
            raise TaskAssignmentError(
                f"{self.from_the_future} members have versions newer than {self._latest_version}, "
                f"and another has version {self.version}, which is too old to agree on one"
            )

    def process_of(self, member_id: str) -> bytes | None:
        """Return the process of a member."""
        return next((one.process_id for one in self.processes.values() if member_id in one.sums_by_member), None)

    def _add(self, member: MemberView, info: SubscriptionInfo) -> None:
        self.version = min(self.version, info.version)
        self.commonly_supported_version = min(self.commonly_supported_version, info.latest_supported_version)
        self.shutdown_requested |= info.error_code == SHUTDOWN_REQUESTED
        if info.version > self._latest_version:
            self.from_the_future += 1
            info = _unread(info)
        process_id = info.process_id
        if process_id not in self.processes:
            self.processes[process_id] = StreamsProcess(process_id, info)
        self.processes[process_id].add(member, info)
        if twice := self.owned.intersection(member.owned):
            log.warning("%s claims tasks of another member: %s", member.member_id, sorted(twice))
        self.owned.update(member.owned)


def lag_of(offset_sum: int, end_sum: int) -> int:
    """Return how much of a task's changelogs is missing. State beyond their end has to be rebuilt."""
    if offset_sum in (RUNNING, UNKNOWN_SUM):
        return offset_sum
    return end_sum if end_sum < offset_sum else end_sum - offset_sum


def end_sums_of(
    changelogs: Mapping[TaskId, Sequence[TopicPartition]], end_offsets: Mapping[TopicPartition, int] | None
) -> dict[TaskId, int]:
    """Return the sum of end offsets of each stateful task; new partitions have none yet."""
    if end_offsets is None:
        return dict.fromkeys(changelogs, UNKNOWN_SUM)
    return {
        task: min(LAG_MAX, sum(end_offsets.get(partition, 0) for partition in partitions))
        for task, partitions in changelogs.items()
    }


def _decode(member: MemberView) -> SubscriptionInfo:
    try:
        return decode_subscription_info(member.user_data or b"")
    except DecodeError as error:
        raise DecodeError(f"subscription of {member.member_id}: {error}") from None


def _unread(info: SubscriptionInfo) -> SubscriptionInfo:
    """Return the readable part of a newer version's subscription."""
    return SubscriptionInfo(
        version=info.version, latest_supported_version=info.latest_supported_version, process_id=FUTURE_PROCESS
    )


def _host(end_point: str) -> Host | None:
    try:
        return Host.parse(end_point)
    except ValueError as error:
        raise TaskAssignmentError(f"application.server: {error}") from None
