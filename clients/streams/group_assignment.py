"""Computes the assignments of all members from a group and its tasks: place, share out, make cooperative, encode.

A task moves from one member to another in two rounds (KIP-429). While its old member still owns a partition of it, the
task is assigned to no member, and the member that waits for it is asked to rejoin at once. If the new member has state
of the task, it is a standby in between, so that its store stays open.

One member of the leader's own process is asked for a probing rebalance. No state is kept between assignments. Source:
StreamsPartitionAssignor of Kafka Streams. Tasks of removed partitions, which Kafka does not have, go with the task that
has their keys now (`removed_tasks`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from anabranch.clients.consumer.consumer_partition_assignor import MemberAssignment, MemberView
from anabranch.clients.streams.assignment_info import (
    AssignmentInfo,
    AssignorError,
    Host,
    encode_assignment_info,
    write_hosts,
)
from anabranch.clients.streams.group import Group, StreamsProcess, end_sums_of
from anabranch.clients.streams.sticky_task_assignor import assign_as_before, assign_sticky
from anabranch.clients.streams.task_assignor import AssignorConfig, Client, Placement, TaskAssignor, Tasks
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.threads import Threads, ThreadShares
from anabranch.protocol.streams_protocol import LATEST_VERSION, NO_REBALANCE_MS
from anabranch.protocol.topic_partition import TopicPartition
from anabranch.protocol.values import value

log = logging.getLogger(__name__)

TaskPartitions = Mapping[TaskId, Sequence[TopicPartition]]


@value(kw_only=True)
class GroupAssignment:
    """The assignments that the leader sends, and the pending moves."""

    members: Mapping[str, MemberAssignment]
    waiting: frozenset[str] = frozenset()
    """Members without a task that another member has to revoke first."""
    probing_at_ms: int | None = None
    """The time of the next probing rebalance."""
    error: AssignorError = AssignorError.NONE
    placement: Placement | None = None
    """The task assignor's decision for each process; None with an error."""
    from_the_future: int = 0
    """Members whose subscriptions could not be read."""

    @property
    def stable(self) -> bool:
        """Whether the assignment is final without another rebalance."""
        return not self.waiting and self.probing_at_ms is None


def assign_group(
    group: Group,
    leader: bytes | None,
    tasks: TaskPartitions,
    changelogs: TaskPartitions,
    end_offsets: Mapping[TopicPartition, int] | None,
    assignor: TaskAssignor,
    config: AssignorConfig,
    now_ms: int,
    racks: Mapping[TopicPartition, Collection[str]] | None = None,
    removed: Mapping[TaskId, TaskId] | None = None,
) -> GroupAssignment:
    """Decide and encode the assignment of every member.

    `leader` is the leader's process; no `end_offsets` means that they could not be looked up; `racks` are those of
    replicas; `removed` maps tasks of removed partitions to the tasks that they go with.
    """
    end_sums = end_sums_of(changelogs, end_offsets)
    task_of = {partition: task for task, partitions in tasks.items() for partition in partitions}
    clients = {process_id: one.client(task_of, end_sums) for process_id, one in group.processes.items()}
    if end_offsets is None and assignor is not assign_sticky:
        log.warning("end offsets of changelogs are unknown: tasks keep their members for now")
        assignor = assign_as_before
    replicas = {task: [racks.get(one, ()) for one in partitions] for task, partitions in tasks.items()} if racks else {}
    every = Tasks(every=frozenset(tasks), stateful=frozenset(changelogs), racks=replicas)
    placement = assignor(list(clients.values()), every, config)
    probing_at_ms = now_ms + config.probing_rebalance_interval_ms if placement.probing else None
    writer = _Writer(group, tasks, every, placement, removed or {})
    for process_id, process in group.processes.items():
        asks_at_ms = probing_at_ms if process_id == leader else None
        writer.write(process, clients[process_id], asks_at_ms)
    return GroupAssignment(
        members=writer.members,
        waiting=frozenset(writer.waiting),
        probing_at_ms=probing_at_ms,
        placement=placement,
        from_the_future=group.from_the_future,
    )


def refuse_group(members: Sequence[MemberView], code: AssignorError, version: int = LATEST_VERSION) -> GroupAssignment:
    """Return the same error for every member, at the leader's own version."""
    info = AssignmentInfo(version=version, commonly_supported_version=version, error_code=code)
    refusal = MemberAssignment((), encode_assignment_info(info))
    return GroupAssignment(members={member.member_id: refusal for member in members}, error=code)


class _Writer:
    def __init__(
        self,
        group: Group,
        tasks: TaskPartitions,
        every: Tasks,
        placement: Placement,
        removed: Mapping[TaskId, TaskId],
    ) -> None:
        self._group = group
        self._removed = removed
        self._tasks = tasks
        self._every = every
        self._placement = placement
        self._hosts = self._partitions_by_host(placement.active)
        self._standby_hosts = self._partitions_by_host(placement.standby)
        self._written_hosts = write_hosts(group.version, self._hosts, self._standby_hosts)
        self.members: dict[str, MemberAssignment] = {}
        self.waiting: list[str] = []

    def write(self, process: StreamsProcess, client: Client, asks_at_ms: int | None) -> None:
        """Encode the assignments of one process's members, one of which rejoins at `asks_at_ms`."""
        active, standby = self._shared_out(process, client)
        for member_id in sorted(process.sums_by_member):
            partitions: dict[TopicPartition, TaskId] = {}
            copies = list(standby[member_id])
            next_rebalance_ms = NO_REBALANCE_MS
            for task in active[member_id]:
                if not self._is_owned_elsewhere(task, member_id, process):
                    partitions |= dict.fromkeys(self._tasks[task], task)
                    continue
                next_rebalance_ms = 0
                if task in client.previous_standby and task in self._every.stateful:
                    copies.append(task)
            if next_rebalance_ms == 0:
                self.waiting.append(member_id)
                asks_at_ms = None  # this rejoin comes first
            elif asks_at_ms is not None:
                next_rebalance_ms, asks_at_ms = asks_at_ms, None
            self.members[member_id] = self._encode(partitions, copies, next_rebalance_ms)

    def _shared_out(self, process: StreamsProcess, client: Client) -> tuple[ThreadShares, ThreadShares]:
        placed = self._placement.active[process.process_id]
        threads = Threads(process.sums_by_member, process.had(client))
        active = threads.share(placed & self._every.stateful, stateful=True)
        standby = threads.share(self._placement.standby[process.process_id], stateful=True)
        stateless = threads.share(placed - self._every.stateful, stateful=False)
        return {member: active[member] + stateless[member] for member in active}, standby

    def _is_owned_elsewhere(self, task: TaskId, member_id: str, process: StreamsProcess) -> bool:
        return any(
            partition in self._group.owned and process.owner.get(partition) != member_id
            for partition in self._tasks[task]
        )

    def _encode(
        self, partitions: Mapping[TopicPartition, TaskId], copies: Sequence[TaskId], next_rebalance_ms: int
    ) -> MemberAssignment:
        assigned, given = sorted(partitions), set(partitions.values())
        info = AssignmentInfo(
            version=self._group.version,
            commonly_supported_version=self._group.commonly_supported_version,
            active_tasks=[partitions[partition] for partition in assigned],
            standby_tasks={
                **{task: self._tasks[task] for task in sorted(copies)},
                **{task: () for task, heir in self._removed.items() if heir in given},
            },
            partitions_by_host=self._hosts,
            standby_partitions_by_host=self._standby_hosts,
            next_rebalance_ms=next_rebalance_ms,
        )
        return MemberAssignment(tuple(assigned), encode_assignment_info(info, self._written_hosts))

    def _partitions_by_host(self, placed: Mapping[bytes, frozenset[TaskId]]) -> dict[Host, list[TopicPartition]]:
        """Return the hosts of the group's partitions, without this round's pending moves."""
        return {
            process.host: [partition for task in sorted(placed[process_id]) for partition in self._tasks[task]]
            for process_id, process in self._group.processes.items()
            if process.host is not None
        }
