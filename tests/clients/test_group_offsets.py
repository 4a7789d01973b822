"""Requests about committed offsets, and their responses, in both layouts of OffsetFetch."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch import TopicPartition
from anabranch.clients.group_offsets import (
    checked_offsets,
    commit_errors,
    commit_request,
    fetch_error,
    fetch_request,
    fetched_rows,
    first_commit_error,
    position_request,
)
from anabranch.protocol.apis.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from anabranch.protocol.apis.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from anabranch.protocol.errors import ErrorCode

OFFSETS = {TopicPartition("b", 0): 7, TopicPartition("a", 10): 5, TopicPartition("a", 2): 3}


def test_commit_names_each_topic_once_with_its_leader_epochs() -> None:
    request = commit_request("g", OFFSETS, leader_epoch_of=lambda topic, index: index + 1, generation=4, member_id="m")
    assert (request.generation_id_or_member_epoch, request.member_id, request.group_instance_id) == (4, "m", None)
    rows = {
        one.name: [(row.partition_index, row.committed_offset, row.committed_leader_epoch) for row in one.partitions]
        for one in request.topics
    }
    assert rows == {"a": [(2, 3, 3), (10, 5, 11)], "b": [(0, 7, 1)]}


def test_negative_offset_is_not_committed() -> None:
    with pytest.raises(ValueError, match="the offset to commit of a-2 is negative: -1"):
        commit_request("g", OFFSETS | {TopicPartition("a", 2): -1})


def test_offsets_are_copied_with_their_partitions() -> None:
    given: Any = {("t", 0): 5}
    copied = checked_offsets(given)
    given.clear()
    (partition,) = copied
    assert (partition.topic, partition.partition, copied) == ("t", 0, {TopicPartition("t", 0): 5})


def test_commit_by_a_tool_has_no_member_and_no_epochs() -> None:
    request = commit_request("g", {TopicPartition("a", 0): 1})
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
    assert request.topics[0].partitions[0].committed_leader_epoch == -1


@pytest.mark.parametrize("codes", [(0, 0), (0, 25), (22, 25)])
def test_first_error_of_a_commit_counts(codes: tuple[int, int]) -> None:
    rows = [OffsetCommitResponsePartition(partition_index=i, error_code=code) for i, code in enumerate(codes)]
    response = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="a", partitions=rows)])
    assert list(commit_errors(response).items()) == [
        (TopicPartition("a", i), ErrorCode(code)) for i, code in enumerate(codes)
    ]
    assert first_commit_error(response) == next((code for code in codes if code), 0)


def test_fetch_request_is_the_same_for_one_and_for_many_groups() -> None:
    request = fetch_request("g", OFFSETS, require_stable=True)
    assert request.topics is not None and request.groups[0].topics is not None and request.require_stable
    for layout in (request.topics, request.groups[0].topics):
        assert [(one.name, one.partition_indexes) for one in layout] == [("a", [2, 10]), ("b", [0])]
    everything = fetch_request("g", None)
    assert (everything.topics, everything.groups[0].topics, everything.require_stable) == (None, None, False)


def test_fetch_response_is_read_in_both_layouts() -> None:
    row = {"partition_index": 3, "committed_offset": 9, "committed_leader_epoch": 2, "metadata": "", "error_code": 0}
    old = OffsetFetchResponse(
        topics=[OffsetFetchResponseTopic(name="a", partitions=[OffsetFetchResponsePartition(**row)])],  # type: ignore[arg-type]
        error_code=14,
    )
    topics = [OffsetFetchResponseTopics(name="a", partitions=[OffsetFetchResponsePartitions(**row)])]  # type: ignore[arg-type]
    new = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=14)])
    for response in (old, new):
        ((partition, found),) = fetched_rows(response)
        assert (partition, found.committed_offset, found.committed_leader_epoch) == (("a", 3), 9, 2)
        assert fetch_error(response) == 14


def test_position_request_awaits_offsets_without_a_position_of_its_own() -> None:
    request = position_request("g", OFFSETS, generation=4, member_id="m", max_wait_ms=50)
    assert (request.generation_id, request.member_id, request.max_wait_ms) == (4, "m", 50)
    found = [(one.topic, [(row.partition, row.awaited_offset) for row in one.partitions]) for one in request.topics]
    assert found == [("a", [(2, 3), (10, 5)]), ("b", [(0, 7)])]
    assert {(row.need_position, row.position) for one in request.topics for row in one.partitions} == {(True, -1)}
