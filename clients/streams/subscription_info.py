"""A member's user data for the leader: its identity, and the progress of its state.

Old versions list two sets of tasks, running ones and those with some state; from version 7 on each task has the sum of
its changelog offsets (KIP-441). Here it is always sums: a running task has RUNNING, and one with an unknown amount of
state in an old version has UNKNOWN_SUM.

Invariant: a version above `latest_supported_version` is never written, and refused when read. Source: SubscriptionInfo
of Kafka Streams.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from anabranch.clients.streams.task_id import TaskId
from anabranch.protocol import streams_protocol as wire
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.streams_protocol import LATEST_VERSION, UNKNOWN_VERSION
from anabranch.protocol.values import value

RUNNING: Final = -2
"""The offset sum of an active, restored task."""
UNKNOWN_SUM: Final = -3
"""The offset sum of a task with an unknown amount of state."""
OFFSET_SUMS_SINCE: Final = 7
NAMED_TOPOLOGIES_SINCE: Final = 10
SHUTDOWN_REQUESTED: Final = 4
"""The error code with which a member asks the whole application to stop (KIP-663)."""

_NO_NAMES: Final = "named topologies need version 10"


@value(kw_only=True)
class SubscriptionInfo:
    """One member's subscription data. `process_id` is empty for a newer version."""

    version: int = LATEST_VERSION
    latest_supported_version: int = LATEST_VERSION
    process_id: bytes
    user_end_point: str = ""
    task_offset_sums: Mapping[TaskId, int] = dataclasses.field(default_factory=dict)
    unique_field: int = 0
    error_code: int = 0
    client_tags: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        version, latest = self.version, self.latest_supported_version
        if latest == UNKNOWN_VERSION:
            if version not in (1, 2):
                raise ValueError(
                    f"version {version} needs the newest supported version; only versions 1 and 2 have none"
                )
        elif not 1 <= version <= latest:
            raise ValueError(f"version {version} is not between 1 and the newest supported, {latest}")

    @property
    def running(self) -> frozenset[TaskId]:
        """The tasks that the member runs."""
        return frozenset(task for task, offset_sum in self.task_offset_sums.items() if offset_sum == RUNNING)

    @property
    def standby(self) -> frozenset[TaskId]:
        """The tasks with state that the member does not run."""
        return frozenset(task for task, offset_sum in self.task_offset_sums.items() if offset_sum != RUNNING)


def encode_subscription_info(info: SubscriptionInfo) -> bytes:
    """Encode the user data of a subscription. Raises ValueError for fields that its version lacks."""
    sums = info.task_offset_sums
    if info.version < NAMED_TOPOLOGIES_SINCE and any(task.named_topology for task in sums):
        raise ValueError(_NO_NAMES)
    return wire.encode(
        wire.StreamsSubscription(
            version=info.version,
            latest_supported_version=info.latest_supported_version,
            process_id=info.process_id,
            previous_tasks=[_previous(task) for task, offset_sum in sums.items() if offset_sum == RUNNING],
            standby_tasks=[_previous(task) for task, offset_sum in sums.items() if offset_sum != RUNNING],
            user_end_point=info.user_end_point.encode(),
            task_offset_sums=_by_task(sums) if info.version >= NAMED_TOPOLOGIES_SINCE else _by_subtopology(sums),
            unique_field=info.unique_field,
            error_code=info.error_code,
            client_tags=[wire.ClientTag(key=key.encode(), value=tag.encode()) for key, tag in info.client_tags.items()],
        )
    )


def decode_subscription_info(data: bytes) -> SubscriptionInfo:
    """Decode a member's subscription data, of any version. Raises DecodeError."""
    read = wire.decode_subscription(data)
    try:
        return SubscriptionInfo(
            version=read.version,
            latest_supported_version=read.latest_supported_version,
            process_id=read.process_id,
            user_end_point=read.user_end_point.decode(),
            task_offset_sums=_sums(read),
            unique_field=read.unique_field,
            error_code=read.error_code,
            client_tags={tag.key.decode(): tag.value.decode() for tag in read.client_tags},
        )
    except ValueError as error:  # contradictory versions, or invalid text
        raise DecodeError(f"StreamsSubscription: {error}", buffer=data) from None


def _previous(task: TaskId) -> wire.PreviousTask:
    return wire.PreviousTask(subtopology=task.subtopology, partition=task.partition)


def _by_task(sums: Mapping[TaskId, int]) -> list[wire.TaskOffsetSums]:
    return [
        wire.TaskOffsetSums(
            subtopology=task.subtopology,
            partition=task.partition,
            offset_sum=offset_sum,
            named_topology=task.named_topology or None,
        )
        for task, offset_sum in sums.items()
    ]


def _by_subtopology(sums: Mapping[TaskId, int]) -> list[wire.TaskOffsetSums]:
    grouped: dict[int, list[wire.PartitionOffsetSum]] = {}
    for task, offset_sum in sums.items():
        row = wire.PartitionOffsetSum(partition=task.partition, offset_sum=offset_sum)
        grouped.setdefault(task.subtopology, []).append(row)
    return [wire.TaskOffsetSums(subtopology=one, partitions=rows) for one, rows in grouped.items()]


def _sums(read: wire.StreamsSubscription) -> dict[TaskId, int]:
    if read.version < OFFSET_SUMS_SINCE:
        sums = {TaskId(row.subtopology, row.partition): UNKNOWN_SUM for row in read.standby_tasks}
        return sums | {TaskId(row.subtopology, row.partition): RUNNING for row in read.previous_tasks}
    if read.version < NAMED_TOPOLOGIES_SINCE:
        return {
            TaskId(group.subtopology, row.partition): row.offset_sum
            for group in read.task_offset_sums
            for row in group.partitions
        }
    return {
        TaskId(row.subtopology, row.partition, row.named_topology or ""): row.offset_sum
        for row in read.task_offset_sums
    }
