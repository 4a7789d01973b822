"""All requests have one form for their topics and groups, and parts of it can be removed."""

from __future__ import annotations

import copy
import struct

from anabranch.faults.request_fields import Names, derivable, kinds_of, levels_of, producer_id_of, rows_of, without
from anabranch.protocol.apis.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from anabranch.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.metadata import MetadataRequest
from anabranch.protocol.apis.stop_replica import StopReplicaRequest, StopReplicaTopicV1
from anabranch.protocol.registry import BY_NAME

ID = b"o" * 16
NAMES = Names({ID: "orders"}.get)


def fetch(*topics: FetchTopic) -> FetchRequest:
    gone = [ForgottenTopic(topic="old", partitions=[1])]
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=list(topics), forgotten_topics_data=gone)


def partition(index: int) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1)


def test_rows_have_fields_of_enclosing_structures() -> None:
    by_name = fetch(
        FetchTopic(topic="a", partitions=[partition(0), partition(1)]), FetchTopic(topic="b", partitions=[])
    )
    assert rows_of(NAMES, by_name, 4) == [
        {"topic": "a", "partition": 0},
        {"topic": "a", "partition": 1},
        {"topic": "b"},
    ]
    by_id = fetch(
        FetchTopic(topic_id=ID, partitions=[partition(0)]), FetchTopic(topic_id=b"x" * 16, partitions=[partition(0)])
    )
    assert rows_of(NAMES, by_id, 13) == [
        {"topic_id": ID, "topic": "orders", "partition": 0},
        {"topic_id": b"x" * 16, "partition": 0},
    ]
    stop = StopReplicaRequest(
        controller_id=1, controller_epoch=1, topics=[StopReplicaTopicV1(name="a", partition_indexes=[4, 5])]
    )
    assert rows_of(NAMES, stop, 1) == [{"topic": "a", "partition": 4}, {"topic": "a", "partition": 5}]
    configs = DescribeConfigsRequest(resources=[
        DescribeConfigsResource(resource_type=kind, resource_name="a", configuration_keys=None) for kind in (2, 4)
    ])  # fmt: skip
    assert [row.get("topic") for row in rows_of(NAMES, configs, 1)] == ["a", None]
    created = CreateTopicsRequest(topics=[
        CreatableTopic(name="a", num_partitions=-1, replication_factor=-1, configs=[],
                       assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])])
    ], timeout_ms=1)  # fmt: skip
    assert rows_of(NAMES, created, 1) == [{"topic": "a"}]


def test_request_for_everything_names_nothing() -> None:
    assert rows_of(NAMES, MetadataRequest(topics=None), 9) == [{}]


def test_key_is_a_group_or_a_transactional_id() -> None:
    request = FindCoordinatorRequest(key="k", key_type=1)
    assert rows_of(Names(lambda _: None, 0), request, 1) == [{"key": "k", "group": "k"}]
    assert rows_of(Names(lambda _: None, 1), request, 1) == [{"key": "k", "transactional_id": "k"}]


def test_rows_are_removed_from_a_copy() -> None:
    request = fetch(
        FetchTopic(topic="a", partitions=[partition(0), partition(1)]), FetchTopic(topic="b", partitions=[partition(2)])
    )
    left = without(NAMES, request, 4, lambda row: row["topic"] == "b" or row["partition"] == 0, copy.copy, {})
    assert left is not None and rows_of(NAMES, left, 4) == [{"topic": "a", "partition": 1}]
    assert len(rows_of(NAMES, request, 4)) == 3
    assert without(NAMES, request, 4, lambda row: True, copy.copy, {}) is None
    listed = StopReplicaRequest(
        controller_id=1, controller_epoch=1, topics=[StopReplicaTopicV1(name="a", partition_indexes=[4, 5])]
    )
    left = without(NAMES, listed, 1, lambda row: row["partition"] == 4, copy.copy, {})
    assert left is not None and left.topics[0].partition_indexes == [5]


def test_producer_id_is_read_from_batch_header() -> None:
    batch = bytearray(61)
    batch[16] = 2
    batch[43:51] = struct.pack(">q", 4711)
    assert producer_id_of(batch) == 4711
    batch[16] = 1
    assert producer_id_of(batch) is producer_id_of(None) is producer_id_of(b"") is None


def test_nameable_kinds_of_each_request() -> None:
    assert kinds_of(BY_NAME["Produce"].request, 2) == {"topic", "partition", "producer_id"}
    assert "transactional_id" in kinds_of(BY_NAME["Produce"].request, 3)
    assert {"group", "transactional_id"} <= kinds_of(BY_NAME["FindCoordinator"].request, 0)
    assert kinds_of(BY_NAME["ListGroups"].request, 0) == frozenset()


def test_rows_of_response_follow_request() -> None:
    topic, inside = levels_of(BY_NAME["Metadata"], 9)
    assert derivable(topic, BY_NAME["Metadata"], 9) and not derivable(inside, BY_NAME["Metadata"], 9)
    outer, inner = levels_of(BY_NAME["DeleteAcls"], 2)
    assert derivable(outer, BY_NAME["DeleteAcls"], 2) and not derivable(inner, BY_NAME["DeleteAcls"], 2)
    (found,) = levels_of(BY_NAME["DescribeLogDirs"], 1)
    assert not derivable(found, BY_NAME["DescribeLogDirs"], 1)
