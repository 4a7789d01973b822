"""Describes consumer groups for `Admin`: members and committed offsets; resets the offsets of an empty group.

Requests about a group go to its coordinator, and list requests to every broker. Each function raises a refusal as a
`KafkaError` with Kafka's code. `group_kinds` describes share groups and streams groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.clients import group_offsets
from anabranch.clients.network import Network
from anabranch.clients.streams_members import application_server, tasks_of_member, tasks_text
from anabranch.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from anabranch.protocol.apis.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from anabranch.protocol.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse, WithheldTopic
from anabranch.protocol.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from anabranch.protocol.apis.offset_commit import OffsetCommitResponse
from anabranch.protocol.apis.offset_fetch import OffsetFetchResponse
from anabranch.protocol.consumer_protocol import assigned_partitions
from anabranch.protocol.errors import ErrorCode, KafkaError, raise_for_error
from anabranch.protocol.topic_partition import TopicPartition

CLASSIC = "classic"
CONSUMER = "consumer"
"""As a kind, KIP-848 groups; as a protocol type, those and classic consumer groups."""
SHARE = "share"
"""Share groups (KIP-932)."""
STREAMS = "streams"
"""Streams groups (KIP-1071)."""
DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class Member:
    """One member in a group's description."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    holds_gates: bool = False
    """Whether the member keeps the order of keys across resizes itself."""
    epoch: int | None = None
    """The member epoch, if the broker assigns."""
    tasks: str = ""
    """The tasks of a member of a Streams application, by their roles."""
    application_server: str = ""
    """HOST:PORT at which such a member answers queries, if it says so."""

    def __str__(self) -> str:
        return f"{self.client_id}{self.host}"


@dataclass(frozen=True, slots=True)
class Group:
    """A group: its state, protocol and members."""

    group_id: str
    state: str
    protocol: str
    """The assignor's name."""
    members: tuple[Member, ...]
    withheld: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partitions that the coordinator withholds, because members without gates would read them too early -> why."""
    kind: str = CLASSIC
    epoch: int | None = None
    """The group epoch, if the broker assigns."""
    assignment_epoch: int | None = None
    """The assignment epoch, if the broker assigns."""

    def owner(self, partition: TopicPartition) -> Member | None:
        """Return the first member that a partition is assigned to; None if there is none."""
        return next(iter(self.owners(partition)), None)

    def owners(self, partition: TopicPartition) -> list[Member]:
        """Return the members that a partition is assigned to: in a share group possibly several."""
        return [member for member in self.members if partition in member.partitions]


@dataclass(frozen=True, slots=True, order=True)
class ListedGroup:
    """A group in the list of all groups."""

    group_id: str
    kind: str
    protocol_type: str
    state: str
    """Kafka's name of the state: "Stable", "Empty" ..."""


async def list_groups(network: Network, *protocol_types: str) -> dict[str, str]:
    """List groups of these protocol types, by default consumer groups: group id -> state."""
    listed = await list_all_groups(network)
    return {one.group_id: one.state for one in listed if one.protocol_type in (protocol_types or (CONSUMER, ""))}


async def list_all_groups(network: Network) -> list[ListedGroup]:
    """List the groups of all kinds."""

    async def of(node_id: int) -> ListGroupsResponse:
        response: ListGroupsResponse = await network.call(node_id, ListGroupsRequest())
        raise_for_error(response.error_code, f"node {node_id}")
        return response

    async def once() -> list[ListGroupsResponse]:
        await network.refresh()
        return await asyncio.gather(*(of(node_id) for node_id in network.metadata.nodes))

    answers = await network.retry(once)  # ask all brokers again: a dead broker's groups have moved
    rows = {row.group_id: row for answer in answers for row in answer.groups}
    return sorted(
        ListedGroup(one.group_id, one.group_type.lower() or CLASSIC, one.protocol_type, one.group_state)
        for one in rows.values()
    )


async def describe_group(network: Network, group_id: str) -> Group:
    """Describe one consumer group, of either protocol. Raises GROUP_ID_NOT_FOUND if it does not exist."""
    request = DescribeGroupsRequest(groups=[group_id], generation_aware=True)
    response: DescribeGroupsResponse = await network.call_coordinator(
        group_id, request, lambda answer: answer.groups[0].error_code
    )
    (row,) = response.groups
    if row.group_state == DEAD or row.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return await _describe_by_broker(network, group_id)
    raise_for_error(row.error_code, group_id)
    members = tuple(
        Member(
            one.member_id,
            one.client_id,
            one.client_host,
            assigned_partitions(one.member_assignment),
            one.holds_gates,
            tasks=tasks_text(tasks_of_member(row.protocol_data, one.member_assignment)),
            application_server=application_server(row.protocol_data, one.member_metadata),
        )
        for one in row.members
    )
    return Group(group_id, row.group_state, row.protocol_data, members, _withheld(row.withheld))


def partitions_in(rows: Iterable[Any]) -> tuple[TopicPartition, ...]:
    """Return the partitions in a broker's description of an assignment."""
    return tuple(TopicPartition(row.topic_name, index) for row in rows for index in row.partitions)


async def _describe_by_broker(network: Network, group_id: str) -> Group:
    """Describe a KIP-848 group: DescribeGroups reports it as dead."""
    request = ConsumerGroupDescribeRequest(
        group_ids=[group_id], include_authorized_operations=False, generation_aware=True
    )
    try:
        response: ConsumerGroupDescribeResponse = await network.call_coordinator(
            group_id, request, lambda answer: answer.groups[0].error_code
        )
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, group_id) from None
    (row,) = response.groups
    unknown = row.error_code == ErrorCode.UNSUPPORTED_VERSION
    raise_for_error(ErrorCode.GROUP_ID_NOT_FOUND if unknown else row.error_code, group_id)
    members = tuple(
        Member(
            one.member_id,
            one.client_id,
            one.client_host,
            partitions_in(one.assignment.topic_partitions),
            one.holds_gates,
            one.member_epoch,
        )
        for one in row.members
    )
    return Group(
        group_id,
        row.group_state,
        row.assignor_name,
        members,
        _withheld(row.withheld),
        kind=CONSUMER,
        epoch=row.group_epoch,
        assignment_epoch=row.assignment_epoch,
    )


async def committed_offsets(network: Network, group_id: str) -> dict[TopicPartition, int]:
    """Return every committed offset of the group: partition -> the offset of the next record to read."""
    request = group_offsets.fetch_request(group_id, None)
    response: OffsetFetchResponse = await network.call_coordinator(group_id, request, group_offsets.fetch_error)
    raise_for_error(group_offsets.fetch_error(response), group_id)
    rows = group_offsets.fetched_rows(response)
    return {partition: row.committed_offset for partition, row in rows if row.committed_offset >= 0}


async def commit_offsets(network: Network, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set the committed offsets of a group without members. Raises UNKNOWN_MEMBER_ID while it has some."""
    for partition, code in (await commit_each(network, group_id, offsets)).items():
        raise_for_error(code, str(partition))


async def commit_each(
    network: Network, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ErrorCode]:
    """Set the committed offsets of a group without members. Returns the outcome of each partition."""
    request = group_offsets.commit_request(group_id, offsets)
    response: OffsetCommitResponse = await network.call_coordinator(group_id, request, group_offsets.first_commit_error)
    return group_offsets.commit_errors(response)


async def delete_group(network: Network, group_id: str) -> None:
    """Delete a group and its offsets. Raises NON_EMPTY_GROUP while it has members."""
    lost_responses: list[None] = []
    response: DeleteGroupsResponse = await network.call_coordinator(
        group_id,
        DeleteGroupsRequest(groups_names=[group_id]),
        lambda answer: answer.results[0].error_code,
        on_unknown_outcome=lambda: lost_responses.append(None),
    )
    code = response.results[0].error_code
    if not (lost_responses and code == ErrorCode.GROUP_ID_NOT_FOUND):
        raise_for_error(code, group_id)


def _withheld(topics: Sequence[WithheldTopic]) -> dict[TopicPartition, str]:
    return {TopicPartition(topic.name, one.partition_index): one.reason for topic in topics for one in topic.partitions}
