"""The bytes that a Streams group sends to assign its tasks, by version of the format (KAFKA-7149).

A group of some instances with a given number of stateful tasks, each with a standby, all with an end point: the sizes
of one member's subscription and assignment, and of the leader's whole JoinGroup response and SyncGroup request. No
version of the format compresses. Version 5 added a dictionary of topics for the map of hosts, which every member gets
whole; the table shows the savings. The gzip column is hypothetical: Kafka has no such format, and brokers pass these
bytes on unchanged.

    python -m benchmarks.streams_sizes [--tasks 1000 10000] [--instances 20]
"""

from __future__ import annotations

import argparse
import gzip
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.clients.consumer.consumer_partition_assignor import MemberView
from anabranch.clients.streams.group import Group
from anabranch.clients.streams.group_assignment import assign_group
from anabranch.clients.streams.high_availability_task_assignor import assign_highly_available
from anabranch.clients.streams.partition_grouper import TopicsInfo, changelogs_of_tasks, partitions_of_tasks
from anabranch.clients.streams.subscription_info import RUNNING, SubscriptionInfo, encode_subscription_info
from anabranch.clients.streams.task_assignor import AssignorConfig
from anabranch.clients.streams.task_id import TaskId
from anabranch.protocol.streams_protocol import LATEST_VERSION, UNKNOWN_VERSION
from anabranch.protocol.topic_partition import TopicPartition
from benchmarks.report import Figure, summary, table, working

TASKS: Final = (1000, 10_000)
INSTANCES: Final = 20
SUBTOPOLOGIES: Final = 10
NOW_MS: Final = 1_700_000_000_000
COMPRESSION_MIN: Final = 2.0
"""The minimum factor by which version 5's dictionary must shrink the assignments of a large group."""


@dataclass(frozen=True)
class Sizes:
    """Bytes of user data in one version."""

    subscriptions: list[bytes]
    assignments: list[bytes]

    @property
    def total(self) -> int:
        """The bytes that the leader receives and sends."""
        return sum(map(len, self.subscriptions)) + sum(map(len, self.assignments))


def measured(version: int, tasks: int, instances: int = INSTANCES) -> Sizes:
    """The sizes of a stable group: every instance runs its share, and has as many standbys."""
    topics = [
        TopicsInfo(
            source_topics=frozenset({f"flights-by-carrier-repartition-{one}"}), changelog_topics=frozenset({f"c{one}"})
        )
        for one in range(SUBTOPOLOGIES)
    ]
    width = range(tasks // SUBTOPOLOGIES)
    partitions = partitions_of_tasks(topics, {topic: width for one in topics for topic in one.source_topics})
    changelogs = changelogs_of_tasks(topics, partitions)
    members = [_member(version, number, instances, list(partitions), partitions) for number in range(instances)]
    ends = dict.fromkeys((one for ends in changelogs.values() for one in ends), 1_000_000)
    config = AssignorConfig(num_standby_replicas=1)
    led = assign_group(Group(members), None, partitions, changelogs, ends, assign_highly_available, config, NOW_MS)
    answers = [answer.user_data or b"" for _, answer in sorted(led.members.items())]
    return Sizes([member.user_data or b"" for member in members], answers)


def _member(
    version: int,
    number: int,
    instances: int,
    tasks: Sequence[TaskId],
    partitions: dict[TaskId, tuple[TopicPartition, ...]],
) -> MemberView:
    """One instance with its share of tasks, and standbys of its neighbour's."""
    running, copied = tasks[number::instances], tasks[(number + 1) % instances :: instances]
    info = SubscriptionInfo(
        version=version,
        latest_supported_version=UNKNOWN_VERSION if version < 3 else LATEST_VERSION,
        process_id=number.to_bytes(16, "big"),
        user_end_point=f"flights-{number}.streams.example:8080" if version > 1 else "",
        task_offset_sums=dict.fromkeys(running, RUNNING) | dict.fromkeys(copied, 999_000),
    )
    owned = tuple(one for task in running for one in partitions[task])
    return MemberView(f"member-{number:03}", (), owned, encode_subscription_info(info))


def measure(tasks: tuple[int, ...] = TASKS, instances: int = INSTANCES) -> list[Figure]:
    figures = []
    for count in tasks:
        with working(f"streams_sizes: {count:,} tasks") as status:
            found = {}
            for version in range(1, LATEST_VERSION + 1):
                status.update(f"streams_sizes: {count:,} tasks, version {version}")
                found[version] = measured(version, count, instances)
        table(
            f"{count:,} tasks, each with a standby, on {instances} instances: kB of user data by version",
            *("", "one subscription", "one assignment", "JoinGroup", "if gzipped", "SyncGroup", "if gzipped", "of v4"),
            rows=[_row(version, sizes, found[4].total) for version, sizes in found.items()],
            note="JoinGroup: what the leader is told. SyncGroup: what it sends. Gzip is a what-if: no version has it.",
        )
        before, after = (sum(map(len, found[version].assignments)) for version in (4, 5))
        figures.append(
            Figure(
                f"assignments of {count:,} tasks, v5's dictionary of topics against v4 (KAFKA-7149)",
                f">= {COMPRESSION_MIN:.0f}x smaller",
                f"{before / after:.1f}x",
                "the same group in v4",
                before / after >= COMPRESSION_MIN,
            )
        )
    return figures


def _row(version: int, sizes: Sizes, v4_total: int) -> tuple[str, ...]:
    received, sent = sum(map(len, sizes.subscriptions)), sum(map(len, sizes.assignments))
    count = len(sizes.subscriptions)
    cells = (received / count, sent / count, received, _gzipped(sizes.subscriptions), sent, _gzipped(sizes.assignments))
    return (f"v{version}", *(f"{size / 1000:,.1f}" for size in cells), f"{sizes.total / v4_total:.0%}")


def _gzipped(messages: list[bytes]) -> int:
    return sum(len(gzip.compress(one, 6)) for one in messages)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, nargs="+", default=TASKS, help="how many tasks (default: 1000 10000)")
    parser.add_argument("--instances", type=int, default=INSTANCES, help=f"instances (default: {INSTANCES})")
    options = parser.parse_args(arguments)
    summary(measure(tuple(options.tasks), options.instances))
    return 0


if __name__ == "__main__":
    sys.exit(main())
