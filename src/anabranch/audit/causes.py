"""Asks the cluster why a group did not receive stored records: one line per cause.

The audit knows which records of a partition were never delivered. The cluster knows the reason: a gate that waits for
another partition, a commit beyond the records, a group without members.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby

from anabranch import Admin
from anabranch.clients.group_admin import Group, committed_offsets, describe_group
from anabranch.clients.group_gates import ClosedGate
from anabranch.clients.security import SecurityArguments
from anabranch.inspect.closed_gates import closed_gates_of
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.topic_partition import TopicPartition
from anabranch.spark_jobs import secured
from anabranch.spark_jobs.source_options import OPEN, Client
from anabranch.spark_jobs.verdict import Unread

ASK_MS = 10_000


def in_lines(servers: str | None, unread: Sequence[Unread], client: Client = OPEN) -> list[str]:
    """The causes as text, a line for each group and cause.

    `servers` is the cluster's address, `client` the credentials. Without the address or a response from the cluster,
    the lines name only the partitions and offsets.
    """
    causes: Mapping[Unread, str] = {}
    if servers is not None and unread:
        try:
            causes = asyncio.run(_fetch_causes(servers, unread, client))
        except (KafkaError, OSError, TimeoutError):
            causes = {}
    return lines_of(unread, causes)


def lines_of(unread: Iterable[Unread], causes: Mapping[Unread, str]) -> list[str]:
    """The lines of these partitions; those of one group with the same cause share a line."""

    def cause(one: Unread) -> tuple[str, str]:
        return one.group, causes.get(one, "")

    found = []
    for (group, reason), rows in groupby(sorted(unread, key=cause), key=cause):
        its = list(rows)
        places = ", ".join(f"{one.topic}-{one.partition} from {one.offset:,}" for one in its)
        records = sum(one.records for one in its)
        what = "1 record" if records == 1 else f"{records:,} records"
        line = f"{what} that {f'group {group}' if group else 'no group'} was {'not ' if group else ''}given: {places}"
        found.append(f"{line}: {reason}" if reason else line)
    return found


async def _fetch_causes(servers: str, unread: Sequence[Unread], client: Client) -> dict[Unread, str]:
    found: dict[Unread, str] = {}
    known = secured.security(client)
    arguments: SecurityArguments = {} if known is None else {"security": known}
    async with Admin(servers, request_timeout_ms=ASK_MS, **arguments) as admin:
        for name in sorted({one.group for one in unread}):
            its = [one for one in unread if one.group == name]
            try:
                group = await describe_group(admin.network, name)
                committed = await committed_offsets(admin.network, name)
                gates = await closed_gates_of(admin, name, {one.topic for one in its})
            except KafkaError as error:
                found |= dict.fromkeys(its, f"the group cannot be described ({error})")
                continue
            found |= {one: cause_of(one, group, committed, gates) for one in its}
    return found


def cause_of(one: Unread, group: Group, committed: Mapping[TopicPartition, int], gates: Collection[ClosedGate]) -> str:
    """Why a group did not receive records of one partition, from its committed offsets and closed gates."""
    partition = TopicPartition(one.topic, one.partition)
    for gate in gates:
        if gate.partition == partition and one.offset >= gate.offset:
            return f"the gate of {partition} at {gate.offset:,} waits for " + " and ".join(
                f"{blocker.partition} to be committed to {blocker.end:,}" for blocker in gate.blockers
            )
    at = committed.get(partition)
    if at is not None and at > one.offset:
        return f"the group has committed {at:,}, after these records, and will not read them"
    if not group.members:
        return "the group has no members"
    return f"the group has committed {'nothing' if at is None else f'{at:,}'}, and may still read them"
