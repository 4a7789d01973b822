"""The lag of a group: its members, and per partition the committed offset, the end offset and the lag.

A share group commits no offsets. Its position is the start offset, and records finished after it do not count as lag.
If the coordinator cannot count them, all records from the start offset on count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.clients.consumer.offset_lookup import EARLIEST, LATEST, READ_UNCOMMITTED, find_offsets
from anabranch.clients.group_admin import SHARE, STREAMS, Group, Member, committed_offsets
from anabranch.clients.group_kinds import SharedFrom, describe_any_group, shared_offsets
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin
    from anabranch.clients.consumer.offset_lookup import OffsetAndTimestamp
    from anabranch.clients.network import Network


class PartitionLag(NamedTuple):
    """The position of a group in one partition, and the partition's offsets."""

    committed: int | None
    start: int
    end: int
    """-1, like `start`, if the partition is gone."""
    owner: str
    left: int | None = None
    """The number of unfinished records, if a coordinator has counted them."""

    @property
    def lag(self) -> int:
        """The number of offsets that the group has not passed."""
        if self.left is not None:
            return self.left
        reached = self.start if self.committed is None else max(self.committed, self.start)
        return max(self.end - reached, 0)


@dataclass(frozen=True, slots=True)
class GroupStanding:
    """The members and lags of a group at one moment."""

    group: Group
    partitions: Mapping[TopicPartition, PartitionLag]

    @property
    def lag(self) -> int:
        """The lag of all partitions together."""
        return sum(one.lag for one in self.partitions.values())

    def lines(self) -> Iterator[str]:
        """The group as lines of text."""
        group = self.group
        epoch = "" if group.epoch is None else f"epoch {group.epoch} (assigned {group.assignment_epoch}), "
        yield (
            f"{group.group_id}: {group.kind} group, {group.state}, {epoch}{len(group.members)} members, "
            f"protocol {group.protocol or '-'}, lag {self.lag:,}"
        )
        reached = "start" if group.kind == SHARE else "committed"
        for partition, one in sorted(self.partitions.items()):
            committed = "-" if one.committed is None else f"{one.committed:,}"
            end = "gone" if one.end < 0 else f"{one.end:,}"
            place = f"  {partition!s:<32} {reached} {committed:>12}  end {end:>12}  lag {one.lag:>10,}"
            yield f"{place}  {one.owner or 'no member'}"
        yield from withheld_lines(group)
        yield from (f"  member {line}" for line in map(member_line, group.members) if line)

    def row(self) -> Mapping[str, Any]:
        """The group as a JSON row."""
        group = self.group
        return {
            "group": group.group_id,
            "type": group.kind,
            "state": group.state,
            "epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "protocol": group.protocol,
            "lag": self.lag,
            "members": [
                {
                    "member": one.member_id,
                    "client": one.client_id,
                    "host": one.host,
                    "epoch": one.epoch,
                    "partitions": [str(partition) for partition in one.partitions],
                    "tasks": one.tasks or None,
                    "application_server": one.application_server or None,
                }
                for one in group.members
            ],
            "partitions": [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "committed": one.committed,
                    "end": one.end,
                    "lag": one.lag,
                    "owner": one.owner or None,
                }
                for partition, one in sorted(self.partitions.items())
            ],
            "withheld": withheld_rows(group),
        }


def member_line(member: Member) -> str:
    """Return a member as a line of text; empty if the lines of partitions say it all: no member epoch, no tasks."""
    if member.epoch is None and not member.tasks:
        return ""
    epoch = "" if member.epoch is None else f"epoch {member.epoch}  "
    has = member.tasks or " ".join(map(str, member.partitions)) or "nothing"
    queries = f"  queries at {member.application_server}" if member.application_server else ""
    return f"{member!s:<32} {epoch}has {has}{queries}"


def withheld_lines(group: Group) -> Iterator[str]:
    """The partitions that the coordinator withholds from the group's members, as lines of text."""
    for partition, reason in sorted(group.withheld.items()):
        yield f"  {partition!s:<32} withheld by the coordinator for stock consumers: {reason}"


def withheld_rows(group: Group) -> list[Mapping[str, Any]]:
    """The withheld partitions as JSON rows."""
    return [
        {"topic": partition.topic, "partition": partition.partition, "reason": reason}
        for partition, reason in sorted(group.withheld.items())
    ]


async def standing(admin: Admin, group_id: str) -> GroupStanding:
    """Query a group, its offsets and its partitions' end offsets. Raises GROUP_ID_NOT_FOUND."""
    network = admin.network
    group = await describe_any_group(network, group_id)
    if group.kind == SHARE:
        reached = await shared_offsets(network, group_id)
    else:
        reached = {one: SharedFrom(at, None) for one, at in (await committed_offsets(network, group_id)).items()}
    assigned = {one for member in group.members for one in member.partitions}
    network.follow(*{one.topic for one in (*reached, *assigned)})
    await network.refresh()
    if group.kind == STREAMS:
        assigned = {one for one in assigned if network.metadata.partition(*one) is not None}
    named = {*reached, *assigned}
    bounds = await _bounds(network, named)
    lags = {}
    for one in named:
        start, end = bounds.get(one, (None, None))
        at, left = reached.get(one, SharedFrom(None, None))
        lags[one] = PartitionLag(
            at,
            -1 if start is None else start.offset,
            -1 if end is None else end.offset,
            ", ".join(map(str, group.owners(one))),
            0 if group.kind == SHARE and at is None else left,
        )
    return GroupStanding(group, lags)


async def _bounds(
    network: Network, named: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[OffsetAndTimestamp | None, OffsetAndTimestamp | None]]:
    """The start and end of each partition that exists; a merge may remove partitions meanwhile."""
    there = {one for one in named if network.metadata.partition(*one) is not None}
    while True:
        try:
            starts = await find_offsets(network, dict.fromkeys(there, EARLIEST), READ_UNCOMMITTED)
            ends = await find_offsets(network, dict.fromkeys(there, LATEST), READ_UNCOMMITTED)
        except KafkaError as error:
            metadata = await network.refresh()
            left = {one for one in there if metadata.partition(*one) is not None}
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or left == there:
                raise
            there = left
        else:
            return {one: (starts[one], ends[one]) for one in there}
