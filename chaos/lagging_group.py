"""Describes a group of other projects' consumers that has not received everything, so that one report names the cause.

The description has the coordinator's view (state, members, assignments, closed gates), each partition's end, commit and
deliveries, each member's process, and the members' last exchanges with the nodes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator

from anabranch import Admin
from anabranch.chaos.clients import CLIENT_FAILURES, TOPIC
from anabranch.chaos.history import Send
from anabranch.chaos.members import MemberGroup
from anabranch.clients.group_admin import Group, committed_offsets, describe_group
from anabranch.journal.entry import ExchangeRow
from anabranch.journal.exchange_line import exchange_line
from anabranch.protocol.topic_partition import TopicPartition


async def describe_lag(
    admin: Admin,
    group: MemberGroup,
    sends: Iterable[Send],
    exchanges: Callable[[str], Awaitable[Iterable[ExchangeRow]]],
) -> AsyncIterator[str]:
    """Yield the description, line by line. A part that cannot be read is replaced by the error.

    `exchanges` returns the last exchanges of clients whose id matches a pattern.
    """
    found: Group | None = None
    commits: dict[TopicPartition, int] = {}
    try:
        found = await describe_group(admin.network, group.name)
        yield f"{found.state} {found.kind} group on node {await admin.network.coordinator(group.name)}"
        commits = await committed_offsets(admin.network, group.name)
    except CLIENT_FAILURES as error:
        yield f"the group cannot be read: {error!r}"
    for line in lags(group, sends, found, commits):
        yield line
    members = [] if found is None else found.members
    for member in members:
        epoch = "" if member.epoch is None else f" of epoch {member.epoch}"
        yield f"member {member.member_id} ({member.client_id}){epoch} has {sorted(map(str, member.partitions))}"
    for line in group.processes.states():
        yield line
    for client_id in dict.fromkeys([f"{group.name}-*", *(member.client_id for member in members)]):
        for row in await exchanges(client_id):
            yield exchange_line(row)


def lags(
    group: MemberGroup, sends: Iterable[Send], found: Group | None, commits: dict[TopicPartition, int]
) -> Iterator[str]:
    """Yield a line for each partition that is not delivered to its end, with its owner or its closed gate."""
    ends: dict[int, int] = {}
    for send in sends:
        if send.outcome == "ok" and send.place is not None:
            ends[send.place[1]] = max(ends.get(send.place[1], 0), send.offset + 1)
    delivered: dict[int, int] = {}
    for one in group.deliveries:
        delivered[one.place[1]] = max(delivered.get(one.place[1], 0), one.offset + 1)
    for index, end in sorted(ends.items()):
        partition = TopicPartition(TOPIC, index)
        if delivered.get(index, 0) < end:
            owner = None if found is None else found.owner(partition)
            reason = "" if found is None else found.withheld.get(partition, "")
            where = f"waits for {reason}" if reason else f"is assigned to {owner.member_id if owner else 'no member'}"
            yield (
                f"{partition} {where}: delivered to {delivered.get(index, 0)} of {end}, "
                f"committed {commits.get(partition, 'nothing')}"
            )
