"""Every API and version can get an error at each level with an error code, in the requested rows.

Method: the requests of `samples` go through a dispatcher with one rule; the answer is encoded and read again.
"""

from __future__ import annotations

import pytest

from anabranch.broker.dispatch.request_context import CloseConnection
from anabranch.faults.matching import BROKERS_ONLY
from anabranch.faults.request_fields import Names, derivable, levels_of, rows_of
from anabranch.faults.rewriting import (
    EACH,
    empty_answer,
    has_field,
    interleave,
    level_for,
    rows_in,
    with_errors,
    with_field,
    with_throttle,
)
from anabranch.faults.rule import Rule
from anabranch.protocol import codec
from anabranch.protocol.answerable import answerable
from anabranch.protocol.apis.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from anabranch.protocol.apis.create_acls import AclCreationResult, CreateAclsResponse
from anabranch.protocol.apis.fetch import PartitionData
from anabranch.protocol.apis.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from anabranch.protocol.apis.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.registry import BY_NAME, Api
from tests.anabranch.faults.samples import PEER, Inner, armed, faulty, request_of, served
from tests.cases import for_each

NAMES = Names(lambda topic_id: None)
LEVELS = [
    (api, version, level.title)
    for api, version in served()
    for level in levels_of(api, version)
    if derivable(level, api, version)
]
WITHOUT_PLACE = {("PartitionLeaderEpochsForPartitions", 0)}


@for_each(LEVELS)
async def test_every_api_is_refused_at_every_level(api: Api, version: int, title: str) -> None:
    code = next(iter(answerable(api.name, frozenset())))
    rule = armed(api=(api.name,), error=code.name, level=title, between_brokers=api.key in BROKERS_ONLY)
    inner = Inner()
    request = request_of(api, version)
    response = await faulty(inner, rule).answer(request, PEER)
    read, _ = codec.decode(api.response, version, codec.encode(response, version))
    level = next(one for one in levels_of(api, version) if one.title == title)
    if level.path:
        found = rows_in(NAMES, read, version, level, {})
        asked = rows_of(NAMES, request.body, version)
        assert 0 < len(found) <= len(asked)
        for row in found:
            assert any(all(one.get(kind) == value for kind, value in row.items() if kind in one) for one in asked)
        rewritten = with_field(NAMES, read, version, [*((one.name, EACH) for one in level.path), (level.field, None)],
                               int(code), {}, lambda row: True)  # fmt: skip
        assert rewritten == read, "every row has the error"
    else:
        assert getattr(read, level.field) == code
    assert rule.hits == 1
    assert not inner.asked or api.name == "Fetch", "what is refused is not done"


def test_every_api_has_an_error_field() -> None:
    for api, version in served():
        assert levels_of(api, version) or (api.name, version) in WITHOUT_PLACE


def test_error_code_is_placed_as_in_kafka() -> None:
    def title(name: str, version: int, **said: object) -> str:
        level = level_for(Rule(**said), BY_NAME[name], version)  # type: ignore[arg-type]
        return "" if level is None else level.title

    assert title("Fetch", 12, error="NOT_LEADER_OR_FOLLOWER") == "partition"
    assert title("Fetch", 12, error="FETCH_SESSION_ID_NOT_FOUND") == "top"
    assert title("OffsetFetch", 5, error="NOT_COORDINATOR") == "top"
    assert title("OffsetFetch", 8, error="NOT_COORDINATOR") == "row"
    assert title("OffsetFetch", 1, error="NOT_COORDINATOR") == "partition"
    assert title("Metadata", 9, error="LEADER_NOT_AVAILABLE") == "topic"
    assert title("Metadata", 9, error="LEADER_NOT_AVAILABLE", partition=(1,)) == "partition"
    assert title("Heartbeat", 4, error="UNKNOWN_MEMBER_ID") == "top"
    assert title("LeaveGroup", 5, error="UNKNOWN_MEMBER_ID") == "row"
    assert title("LeaveGroup", 5, error="UNKNOWN_MEMBER_ID", level="top") == "top"
    assert title("Heartbeat", 4, error="UNKNOWN_MEMBER_ID", level="partition") == ""
    assert title("PartitionLeaderEpochsForPartitions", 0, error="UNKNOWN_TOPIC_OR_PARTITION") == ""


def produced(*rows: tuple[str, int]) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=name, partition_responses=[PartitionProduceResponse(index=index, error_code=0, base_offset=7)]
            )
            for name, index in rows
        ]
    )


def test_row_is_replaced_or_added_in_a_copy() -> None:
    before = produced(("a", 0), ("b", 1))
    (level,) = levels_of(BY_NAME["Produce"], 9)
    rows = [{"topic": "b", "partition": 1}, {"topic": "b", "partition": 2}, {"topic": "c", "partition": 0}]
    made = with_errors(before, 9, level, rows, ErrorCode.NOT_LEADER_OR_FOLLOWER, "told")
    shown = [
        (topic.name, [(one.index, one.error_code, one.base_offset, one.error_message) for one in rows_of_topic])
        for topic in made.responses
        for rows_of_topic in [topic.partition_responses]
    ]
    assert shown == [
        ("a", [(0, 0, 7, None)]),
        ("b", [(1, 6, -1, "told"), (2, 6, -1, "told")]),
        ("c", [(0, 6, -1, "told")]),
    ]
    assert before == produced(("a", 0), ("b", 1))


def test_rows_without_names_keep_order() -> None:
    (level,) = levels_of(BY_NAME["CreateAcls"], 3)
    served = CreateAclsResponse(throttle_time_ms=0, results=[AclCreationResult(error_code=0, error_message="mine")])
    made = interleave(served, 3, level, [({}, True), ({}, False), ({}, True)], ErrorCode.SECURITY_DISABLED)
    assert [row.error_code for row in made.results] == [54, 0, 54]
    assert made.results[1].error_message == "mine"


def test_field_is_set_in_selected_rows() -> None:
    before = MetadataResponse(
        brokers=[],
        topics=[
            MetadataResponseTopic(
                error_code=0,
                name=name,
                partitions=[
                    MetadataResponsePartition(
                        error_code=0, partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1]
                    )
                    for index in range(2)
                ],
            )
            for name in ("a", "b")
        ],
    )
    path = [("topics", EACH), ("partitions", 1), ("leader_id", None)]
    made = with_field(NAMES, before, 9, path, 7, {}, lambda row: row.get("topic") == "b")
    assert [[one.leader_id for one in topic.partitions] for topic in made.topics] == [[1, 1], [1, 7]]
    assert before.topics[1].partitions[1].leader_id == 1
    everywhere = with_field(
        NAMES, made, 9, [("topics", 0), ("partitions", EACH), ("isr_nodes", EACH)], 9, {}, lambda _: True
    )
    assert [topic.partitions[0].isr_nodes for topic in everywhere.topics] == [[9], [1]]
    assert with_field(NAMES, made, 9, [("controller_id", None)], 3, {}, lambda _: True).controller_id == 3


def test_field_of_a_struct_or_list_that_is_null_is_not_set() -> None:
    beat = ConsumerGroupHeartbeatResponse(error_code=0, member_epoch=1, heartbeat_interval_ms=5000)
    owned = [("assignment", None), ("topic_partitions", EACH), ("partitions", EACH)]
    assert with_field(NAMES, beat, 0, owned, 7, {}, lambda _: True) == beat, "the assignment has not changed"
    assert not has_field(NAMES, beat, 0, owned, {}, lambda _: True)
    beat.assignment = Assignment(topic_partitions=[TopicPartitions(topic_id=bytes(16), partitions=[1, 2])])
    made = with_field(NAMES, beat, 0, owned, 7, {}, lambda _: True)
    assert made.assignment is not None and made.assignment.topic_partitions[0].partitions == [7, 7]
    assert has_field(NAMES, beat, 0, owned, {}, lambda _: True)
    row = PartitionData(partition_index=0, error_code=0, high_watermark=5, aborted_transactions=None, records=b"")
    for path in ([("aborted_transactions", EACH), ("first_offset", None)], [("aborted_transactions", 0)]):
        assert with_field(NAMES, row, 12, path, 7, {}, lambda _: True) == row
        assert not has_field(NAMES, row, 12, path, {}, lambda _: True)
    assert has_field(NAMES, row, 12, [("high_watermark", None)], {}, lambda _: True)


def test_throttle_time_is_set_where_version_supports_it() -> None:
    answer = empty_answer(BY_NAME["Produce"])
    assert with_throttle(answer, 1, 500).throttle_time_ms == 500
    assert with_throttle(answer, 0, 500).throttle_time_ms == 0 == answer.throttle_time_ms


async def test_error_for_request_without_response_closes_connection() -> None:
    request = request_of(BY_NAME["Produce"], 9)
    request.body.acks = 0
    with pytest.raises(CloseConnection, match="rule test: NOT_LEADER_OR_FOLLOWER"):
        await faulty(Inner(), armed(api=("Produce",), error="NOT_LEADER_OR_FOLLOWER")).answer(request, PEER)
