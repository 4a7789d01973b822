"""Closed gates of a group, and the members and commits that they wait for."""

from __future__ import annotations

from anabranch.clients.group_admin import Group, Member
from anabranch.clients.group_gates import ClosedGate, closed_gates
from anabranch.clients.metadata import Partition, Topic
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.topic_partition import TopicPartition

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
OWNER = Member("m", "c", "/h", (ZERO,))
GROUP = Group("g", "Stable", "range", (OWNER,))
END = {KeyEpoch(0, 0): 40}
"""Partition 0 was split at 40: what is behind that, and all of partition 1, is of generation 1."""


def topic() -> Topic:
    def partition(index: int, *starts: tuple[int, int]) -> Partition:
        return Partition(index, 1, 5, replicas=(1,), isr=(1,), error=ErrorCode.NONE, gen_start=starts)

    lineage = Lineage(1, [(0, 1), (1, 2)])
    return Topic("t", b"", {0: partition(0, (0, 0), (1, 3)), 1: partition(1, (1, 0))}, lineage=lineage)


def gates(committed: dict[TopicPartition, int], group: Group | None = GROUP) -> list[ClosedGate]:
    return closed_gates(topic(), END, committed, group)


def test_closed_gate_names_partition_and_commit_that_it_waits_for() -> None:
    (closed,) = gates({ZERO: 30})
    assert (closed.partition, closed.generation, closed.offset, closed.owner) == (ONE, 1, 0, None)
    (blocker,) = closed.blockers
    assert (blocker.partition, blocker.end, blocker.committed, blocker.owner) == (ZERO, 40, 30, OWNER)
    assert blocker.remaining == 10


def test_group_without_commits_has_all_records_remaining() -> None:
    (closed,) = gates({}, None)
    (blocker,) = closed.blockers
    assert (blocker.committed, blocker.remaining, blocker.owner) == (-1, 40, None)


def test_gate_opens_at_commit_of_end() -> None:
    assert [len(gates({ZERO: offset})) for offset in (39, 40, 41)] == [1, 0, 0]
