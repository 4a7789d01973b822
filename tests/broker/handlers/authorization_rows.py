"""The rights that each API needs, and a request for each; the rest of a request is empty.

Source: the checks of `KafkaApis` in Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.broker.dispatch.dispatcher import empty_value
from anabranch.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.registry import BY_NAME
from anabranch.protocol.wire import fields_of

T, G, C, X = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
NAMES = {T: "t", G: "g", C: CLUSTER_NAME, X: "x"}
BATCH = BatchBuilder()
BATCH.append(b"k", b"v", timestamp_ms=0)


@dataclass(frozen=True)
class Row:
    """A request, and what it takes."""

    api: str
    body: Mapping[str, Any]
    needs: tuple[tuple[Operation, ResourceType], ...]
    version: int | None = None

    def __str__(self) -> str:
        rights = "-".join(f"{operation.name}-{kind.name}" for operation, kind in self.needs)
        return f"{self.api}-{rights}{'' if self.version is None else f'-v{self.version}'}"

    @property
    def codes(self) -> list[ErrorCode]:
        """With which codes it is refused, in the order in which rights are looked at."""
        if self.api in ("Fetch", "CreateTopics"):
            return [ErrorCode.TOPIC_AUTHORIZATION_FAILED]  # for a right to the cluster, too
        by_kind = {T: 29, G: 30, C: 31, X: 53}
        return [ErrorCode(by_kind[kind]) for _, kind in self.needs]


def row(api: str, needs: str, version: int | None = None, /, **body: Any) -> Row:
    """`needs` as "WRITE X, READ G"."""
    kinds = {"T": T, "G": G, "C": C, "X": X}
    words = [one.split() for one in needs.split(", ")]
    return Row(api, body, tuple((Operation[operation], kinds[kind]) for operation, kind in words), version)


def partitions(name: str = "name", **each: Any) -> list[dict[str, Any]]:
    return [{name: "t", "partitions": [each]}]


CONTROLLER = {"controller_id": 9, "controller_epoch": -5, "broker_epoch": -5}
PRODUCER = {"producer_id": 1, "producer_epoch": 0}
LAST = 3
ROWS = [
    row(
        "Produce", "WRITE T", acks=1, timeout_ms=1000,
        topic_data=[{"name": "t", "partition_data": [{"index": 0, "records": bytes(BATCH.build())}]}],
    ),
    row(
        "Produce", "WRITE X, WRITE T", acks=1, timeout_ms=1000, transactional_id="x",
        topic_data=[
            {"name": "t", "partition_data": [
                {"index": 0, "records": bytes(BATCH.build(producer_id=1, producer_epoch=0, transactional=True))}
            ]}
        ],
    ),
    row("Fetch", "READ T", 11, replica_id=-1, topics=partitions("topic", partition_max_bytes=100)),
    row("Fetch", "CLUSTER_ACTION C", 11, replica_id=7, topics=partitions("topic", partition_max_bytes=100)),
    row("ListOffsets", "DESCRIBE T", replica_id=-1, topics=partitions(timestamp=-1)),
    *(row("ListOffsets", "DESCRIBE T", version, replica_id=-1, topics=partitions(timestamp=-1)) for version in (0, 1)),
    row("LeaderAndIsr", "CLUSTER_ACTION C", **CONTROLLER),
    row("StopReplica", "CLUSTER_ACTION C", **CONTROLLER),
    row("UpdateMetadata", "CLUSTER_ACTION C", **CONTROLLER),
    row("ControlledShutdown", "CLUSTER_ACTION C", broker_id=7, broker_epoch=-5),
    *(
        row("OffsetCommit", "READ G, READ T", version, group_id="g", topics=partitions(committed_offset=1))
        for version in (0, 1, 8)
    ),
    *(
        row("OffsetFetch", "DESCRIBE G, DESCRIBE T", version, group_id="g",
            topics=[{"name": "t", "partition_indexes": [0]}])
        for version in (0, 5)
    ),
    row("OffsetFetch", "DESCRIBE G, DESCRIBE T", 8,
        groups=[{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}]),
    row("OffsetDelete", "DELETE G, READ T", group_id="g", topics=partitions(partition_index=0)),
    row("FindCoordinator", "DESCRIBE G", 3, key="g", key_type=0),
    row("FindCoordinator", "DESCRIBE X", 4, coordinator_keys=["x"], key_type=1),
    row("FindCoordinator", "CLUSTER_ACTION C", 6, coordinator_keys=["s"], key_type=2),
    row("JoinGroup", "READ G", group_id="g", session_timeout_ms=6000, protocol_type="consumer"),
    row("Heartbeat", "READ G", group_id="g"),
    row("LeaveGroup", "READ G", group_id="g"),
    row("SyncGroup", "READ G", group_id="g", protocol_type="consumer", protocol_name="range"),
    row("DescribeGroups", "DESCRIBE G", groups=["g"]),
    row("CreateTopics", "CREATE C", topics=[{"name": "t", "num_partitions": 1, "replication_factor": 1}],
        validate_only=True),
    row("CreateTopics", "CREATE T", topics=[{"name": "t", "num_partitions": 1, "replication_factor": 1}],
        validate_only=True),
    row("DeleteTopics", "DELETE T", 5, topic_names=["t"]),
    row("DeleteRecords", "DELETE T", topics=partitions(offset=0)),
    row("InitProducerId", "WRITE X", transactional_id="x", producer_id=-1, producer_epoch=-1),
    row("InitProducerId", "IDEMPOTENT_WRITE C", transactional_id=None, producer_id=-1, producer_epoch=-1),
    row("OffsetForLeaderEpoch", "DESCRIBE T", topics=partitions("topic", leader_epoch=0)),
    row("AddPartitionsToTxn", "WRITE X, WRITE T", 3, v3_and_below_transactional_id="x",
        v3_and_below_topics=[{"name": "t", "partitions": [0]}]),
    row("AddPartitionsToTxn", "CLUSTER_ACTION C", 4,
        transactions=[{"transactional_id": "x", **PRODUCER, "topics": []}]),
    row("AddOffsetsToTxn", "WRITE X, READ G", transactional_id="x", group_id="g", **PRODUCER),
    row("EndTxn", "WRITE X", transactional_id="x", **PRODUCER),
    *(
        row("WriteTxnMarkers", needs, markers=[
            {**PRODUCER, "topics": [{"name": "nowhere", "partition_indexes": [0]}]}])
        for needs in ("ALTER C", "CLUSTER_ACTION C")
    ),
    row("TxnOffsetCommit", "WRITE X, READ G, READ T", transactional_id="x", group_id="g", **PRODUCER,
        topics=partitions(committed_offset=1)),
    row("DescribeAcls", "DESCRIBE C", resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1),
    row("CreateAcls", "ALTER C", creations=[
        {"resource_type": 2, "resource_name": "other", "resource_pattern_type": 3, "principal": "User:z", "host": "*",
         "operation": 3, "permission_type": 3}]),
    row("DeleteAcls", "ALTER C", filters=[
        {"resource_type_filter": 2, "resource_name_filter": "nowhere", "pattern_type_filter": 3, "operation": 1,
         "permission_type": 1}]),
    row("DescribeConfigs", "DESCRIBE_CONFIGS T", resources=[{"resource_type": 2, "resource_name": "t"}]),
    row("DescribeConfigs", "DESCRIBE_CONFIGS C", resources=[{"resource_type": 4, "resource_name": "1"}]),
    row("DescribeConfigs", "DESCRIBE_CONFIGS C", resources=[{"resource_type": 16, "resource_name": "s"}]),
    *(
        row(api, f"ALTER_CONFIGS {on}", resources=[{"resource_type": kind, "resource_name": name}], validate_only=True)
        for api in ("AlterConfigs", "IncrementalAlterConfigs")
        for on, kind, name in (("T", 2, "t"), ("C", 4, "1"))
    ),
    row("AlterReplicaLogDirs", "ALTER C", dirs=[{"path": "/nowhere", "topics": [{"name": "t", "partitions": [0]}]}]),
    row("DescribeLogDirs", "DESCRIBE C"),
    row("CreatePartitions", "ALTER T", topics=[{"name": "t", "count": 9}], validate_only=True, timeout_ms=1000),
    row("DeleteGroups", "DELETE G", groups_names=["g"]),
    row("ElectLeaders", "ALTER C", topic_partitions=[{"topic": "t", "partitions": [0]}], timeout_ms=1000),
    row("AlterPartitionReassignments", "ALTER C", timeout_ms=1000),
    row("ListPartitionReassignments", "DESCRIBE C", timeout_ms=1000),
    row("DescribeClientQuotas", "DESCRIBE_CONFIGS C"),
    row("AlterClientQuotas", "ALTER_CONFIGS C", validate_only=True, entries=[
        {"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": []}]),
    row("DescribeUserScramCredentials", "DESCRIBE C", users=[{"name": "u"}]),  # of all: Kafka does not answer at all
    row("AlterUserScramCredentials", "ALTER C", deletions=[{"name": "u", "mechanism": 1}]),
    row("AlterPartition", "CLUSTER_ACTION C", broker_id=7, broker_epoch=-5),
    row("AllocateProducerIds", "CLUSTER_ACTION C", broker_id=7, broker_epoch=-5),
    row("UpdateFeatures", "ALTER C", timeout_ms=1000),
    row("DescribeProducers", "READ T", topics=[{"name": "t", "partition_indexes": [0]}]),
    row("DescribeTransactions", "DESCRIBE X", transactional_ids=["x"]),
    row("DescribeQuorum", "DESCRIBE C", topics=[{"topic_name": "__cluster_metadata", "partitions": []}]),
    row("UnregisterBroker", "ALTER C", broker_id=9),
    row("ListConfigResources", "DESCRIBE_CONFIGS C"),
    row("DescribeTopicPartitions", "DESCRIBE T", topics=[{"name": "t"}]),
    row("AddRaftVoter", "ALTER C", voter_id=9),
    row("RemoveRaftVoter", "ALTER C", voter_id=9),
    row("ConsumerGroupHeartbeat", "READ G, DESCRIBE T", group_id="g", member_id="m", subscribed_topic_names=["t"]),
    row("ConsumerGroupDescribe", "DESCRIBE G", group_ids=["g"]),
    row("ShareGroupHeartbeat", "READ G, DESCRIBE T", group_id="g", member_id="m", subscribed_topic_names=["t"]),
    row("ShareGroupDescribe", "DESCRIBE G", group_ids=["g"]),
    row(
        "StreamsGroupHeartbeat", "READ G, DESCRIBE T", group_id="g", member_id="m",
        topology={"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": ["t"]}]},
    ),
    row("StreamsGroupDescribe", "DESCRIBE G", group_ids=["g"]),
    row("ShareFetch", "READ G", group_id="g", member_id="m"),
    row("ShareAcknowledge", "READ G", group_id="g", member_id="m"),
    *(
        row(f"{what}ShareGroupState{rest}", "CLUSTER_ACTION C", group_id="g",
            topics=[{"topic_id": bytes(16), "partitions": [{"partition": 0}]}])
        for what, rest in (("Initialize", ""), ("Read", ""), ("Write", ""), ("Delete", ""), ("Read", "Summary"))
    ),
    row("DescribeShareGroupOffsets", "DESCRIBE G", groups=[{"group_id": "g", "topics": []}]),
    row("AlterShareGroupOffsets", "READ G", group_id="g"),
    row("DeleteShareGroupOffsets", "DELETE G", group_id="g"),
    row("ConsumerGroupPosition", "DESCRIBE G", group_id="g"),
    row("PartitionLeaderEpochsForPartitions", "DESCRIBE T", topics=[{"topic": "t", "partitions": [0]}]),
]  # fmt: skip


def request_for(api: str, given: Mapping[str, Any]) -> Any:
    """A request with these fields; the rest is empty."""
    return _built(BY_NAME[api].request, given)


def _built(struct: type[Any], given: Mapping[str, Any]) -> Any:
    known = {one.name: one for one in fields_of(struct)}
    assert given.keys() <= known.keys(), given.keys() - known.keys()
    return struct(**{name: _content(one, given) for name, one in known.items()})


def _content(one: Any, given: Mapping[str, Any]) -> Any:
    if one.name not in given:
        return empty_value(one)
    content = given[one.name]
    if one.struct is None or content is None:
        return content
    return [_built(one.struct, each) for each in content] if one.is_array else _built(one.struct, content)
