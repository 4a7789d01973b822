"""Every API needs exactly Kafka's permission, and refuses with Kafka's code.

Method: one broker with an authorizer, whose listener wants a password. For each row of the table alice asks without any
right, and again with just the ones that the row names. Source: the checks of `KafkaApis` in Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.broker.dispatch.dispatcher import HANDLERS, empty_value
from anabranch.clients.connection import Connection
from anabranch.clients.security import SecurityArguments
from anabranch.clients.security_config import make_security
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from anabranch.protocol.connection import NODE_SOFTWARE
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.registry import BY_NAME
from anabranch.protocol.wire import fields_of
from tests.broker.serving import until
from tests.contracts.error_codes import codes_in
from tests.secured.certificates import plain_users

LISTENER = "SASL_PLAINTEXT"
AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:admin"}
SMALL = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
ALL_GROUPS = {"group.coordinator.rebalance.protocols": "classic,consumer,share,streams"}
PROPERTIES = {**plain_users(LISTENER, admin="a", alice="b"), **AUTHORIZER, **SMALL, **ALL_GROUPS}
ADMIN: SecurityArguments = {
    "security_protocol": LISTENER,
    "sasl_plain_username": "admin",
    "sasl_plain_password": "a",
}
ALICE: SecurityArguments = {
    "security_protocol": LISTENER,
    "sasl_plain_username": "alice",
    "sasl_plain_password": "b",
}
REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
T, G, C, X = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
NAMES = {T: "t", G: "g", C: CLUSTER_NAME, X: "x"}
NOTHING = {
    *("SaslHandshake", "ApiVersions", "SaslAuthenticate", "DescribeCluster", "Metadata", "Envelope"),
    *("GetTelemetrySubscriptions", "PushTelemetry"),
}
"""What may be asked by all: Metadata leaves out what is hidden, and has tests of its own."""
TOKENS = {"CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken"}
"""There are none, so there is nothing to protect."""
FILTERED = {"ListGroups", "ListTransactions"}
"""Never refused: they list what may be described."""
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
        for on, kind, name in (("T", 2, "t"), ("C", 4, "1"), ("C", 16, "s"))
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


def built(struct: type[Any], given: Mapping[str, Any]) -> Any:
    """A message of what is given; the rest is empty."""
    known = {one.name: one for one in fields_of(struct)}
    assert given.keys() <= known.keys(), given.keys() - known.keys()
    return struct(**{name: _content(one, given) for name, one in known.items()})


def _content(one: Any, given: Mapping[str, Any]) -> Any:
    if one.name not in given:
        return empty_value(one)
    content = given[one.name]
    if one.struct is None or content is None:
        return content
    return [built(one.struct, each) for each in content] if one.is_array else built(one.struct, content)


class Asking:
    """A broker's administrator, and alice's connection to it."""

    def __init__(self, admin: Admin, alice: Connection) -> None:
        self.admin, self.alice = admin, alice

    async def grant(self, *rights: tuple[Operation, ResourceType]) -> None:
        """Give alice these rights, and no others."""
        await self.admin.delete_acls(AclFilter())
        await self.admin.create_acls(
            [
                (ResourcePattern(kind, NAMES[kind]), Acl("User:alice", "*", operation, Permission.ALLOW))
                for operation, kind in rights
            ]
        )

    async def ask(self, asked: Row) -> set[int]:
        """The codes of the answer to alice."""
        request = built(BY_NAME[asked.api].request, asked.body)
        return codes_in(await self.alice.call(request, version=asked.version))


async def coordinating(host: str, port: int) -> None:
    """Wait until the broker coordinates the group, which has an offset then, and the transactional id."""
    connection = await Connection.open(host, port, client_id="admin", security=make_security(**ADMIN))
    for kind, key in ((0, "g"), (1, "x")):
        request = built(BY_NAME["FindCoordinator"].request, {"coordinator_keys": [key], "key_type": kind})
        while codes_in(await connection.call(request)) != {0}:
            pass
    committing = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": partitions(committed_offset=0)}
    while codes_in(await connection.call(built(BY_NAME["OffsetCommit"].request, committing), version=2)) != {0}:
        pass
    await connection.close()


class Place(Asking):
    """The same, and the cluster."""

    def __init__(self, cluster: Cluster, admin: Admin, alice: Connection) -> None:
        super().__init__(admin, alice)
        self.cluster = cluster


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with (
        Cluster(1, listeners=[f"{LISTENER}://127.0.0.1:0"], properties=PROPERTIES) as cluster,
        Admin(cluster.bootstrap_servers, **ADMIN) as admin,
    ):
        await admin.create_topics([NewTopic(name="t"), NewTopic(name="hidden")])
        await admin.wait_for_topic("t")
        await coordinating(*cluster.address(1))
        alice = await Connection.open(
            *cluster.address(1), client_id="alice", security=make_security(**ALICE), software_name=NODE_SOFTWARE
        )
        yield Place(cluster, admin, alice)
        await alice.close()


@pytest.mark.parametrize("asked", ROWS, ids=str)
async def test_request_needs_all_its_rights(place: Place, asked: Row) -> None:
    for count, code in enumerate(asked.codes):
        await place.grant(*asked.needs[:count])
        assert (await place.ask(asked)) & REFUSALS == {code}, f"with {count} of its rights"
    await place.grant(*asked.needs)
    assert not (await place.ask(asked)) & REFUSALS


def test_every_api_has_an_authorization_row() -> None:
    covered = {one.api for one in ROWS}
    assert {one.name for one in HANDLERS} - covered == NOTHING | TOKENS | FILTERED


async def test_topic_without_describe_right_is_answered_like_a_missing_one(place: Place) -> None:
    """Without DESCRIBE, a topic cannot be told from a missing one, except by its id."""
    await place.grant((Operation.READ, T))
    named = built(BY_NAME["Metadata"].request, {"topics": [{"name": one} for one in ("t", "hidden", "nowhere")]})
    rows = {one.name: one for one in (await place.alice.call(named, version=9)).topics}
    assert (rows["t"].error_code, len(rows["t"].partitions)) == (0, 1)
    assert {rows[one].error_code for one in ("hidden", "nowhere")} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert not any(rows[one].partitions or rows[one].is_internal for one in ("hidden", "nowhere"))
    every = await place.alice.call(built(BY_NAME["Metadata"].request, {"topics": None}))
    assert [one.name for one in every.topics] == ["t"]
    hidden_id = place.cluster.nodes[1].services.metadata.topic_id("hidden")
    by_id = built(BY_NAME["Metadata"].request, {"topics": [{"name": None, "topic_id": hidden_id}]})
    (topic,) = (await place.alice.call(by_id, version=12)).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, hidden_id)


async def test_coordinated_partitions_are_listed_only_with_a_right_to_the_cluster(place: Place) -> None:
    """A missing permission must not look like a topic without readers."""
    request = built(BY_NAME["ListGroups"].request, {"readers_of": "t"})
    for rights, told in (
        ((Operation.DESCRIBE, G), []),
        ((Operation.DESCRIBE, C), [0]),
        ((Operation.CLUSTER_ACTION, C), [0]),
    ):
        await place.grant(rights)
        assert (await place.alice.call(request)).coordinated == told


async def test_authorized_operations_are_those_allowed(place: Place) -> None:
    await place.grant((Operation.READ, T), (Operation.DELETE, G))
    asking = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    request = built(BY_NAME["Metadata"].request, {"topics": [{"name": "t"}, {"name": "hidden"}], **asking})
    answer = await place.alice.call(request, version=8)
    authorized = {one.name: one.topic_authorized_operations for one in answer.topics}
    assert authorized == {"t": 1 << Operation.READ | 1 << Operation.DESCRIBE, "hidden": -(2**31)}
    assert answer.cluster_authorized_operations == 0, "who may not describe the cluster"
    groups = built(BY_NAME["DescribeGroups"].request, {"groups": ["g"], "include_authorized_operations": True})
    (group,) = (await place.alice.call(groups)).groups
    assert group.authorized_operations == 1 << Operation.DELETE | 1 << Operation.DESCRIBE


async def test_refused_offset_fetch_v1_is_empty(place: Place) -> None:
    """Version 1 has no group-level error code, and Kafka sets no other."""
    await place.grant((Operation.DESCRIBE, T))
    fields = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
    answer = await place.alice.call(built(BY_NAME["OffsetFetch"].request, fields), version=1)
    assert (answer.error_code, answer.topics) == (0, [])


async def test_write_right_to_any_topic_allows_init_producer_id(place: Place) -> None:
    """KIP-679: idempotent producers need no permission of their own."""
    request = built(
        BY_NAME["InitProducerId"].request, {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}
    )
    await place.grant((Operation.WRITE, T))
    assert (await place.alice.call(request)).error_code == ErrorCode.NONE


async def test_revoked_right_applies_to_open_fetch_sessions(place: Place) -> None:
    """An incremental Fetch is authorized for all partitions of its session."""
    await place.grant((Operation.READ, T))
    fields = {"replica_id": -1, "min_bytes": 1, "max_bytes": 1000, "session_epoch": 0}
    topics = partitions("topic", partition_max_bytes=100)
    request = BY_NAME["Fetch"].request
    opened = await place.alice.call(built(request, {**fields, "topics": topics}), version=11)
    assert opened.session_id
    await place.grant()
    going_on = {**fields, "session_id": opened.session_id, "session_epoch": 1}
    async with Producer(place.cluster.bootstrap_servers, **ADMIN) as producer:
        await producer.send_and_wait("t", b"secret")
    answer = await place.alice.call(built(request, going_on), version=11)
    assert codes_in(answer) & REFUSALS == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert not any(one.records for topic in answer.responses for one in topic.partitions)


MEMBER = {"group_id": "g", "member_id": "AAAAAAAAAAAAAAAAAAAAAQ"}
SHARING = {**MEMBER, "min_bytes": 1, "max_bytes": 1000, "batch_size": 100}


@pytest.mark.parametrize(
    ("api", "of_group", "of_topic", "topic"),
    [
        ("AlterShareGroupOffsets", Operation.READ, Operation.READ, {"partitions": [{"partition_index": 0}]}),
        ("DescribeShareGroupOffsets", Operation.DESCRIBE, Operation.DESCRIBE, {"partitions": [0]}),
        ("DeleteShareGroupOffsets", Operation.DELETE, Operation.READ, {}),
    ],
)
async def test_share_group_offsets_need_a_right_to_the_topic(
    place: Place, api: str, of_group: Operation, of_topic: Operation, topic: dict[str, Any]
) -> None:
    one: dict[str, Any] = {"group_id": "g", "topics": [{"topic_name": "t", **topic}]}
    asked = row(api, "READ G", **({"groups": [one]} if api == "DescribeShareGroupOffsets" else one))
    await place.grant((Operation.READ, G), (Operation.DELETE, G), (Operation.DESCRIBE, T))
    await place.ask(row("DeleteGroups", "DELETE G", groups_names=["g"]))
    for epoch in (0, -1):  # now it is an empty share group: of another one the topics are not looked at
        joined = {**MEMBER, "member_epoch": epoch, "subscribed_topic_names": ["t"]}
        assert await place.ask(row("ShareGroupHeartbeat", "READ G", **joined)) == {ErrorCode.NONE}
    await place.grant((of_topic, T))
    assert await place.ask(asked) & REFUSALS == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
    await place.grant((of_group, G))
    assert await place.ask(asked) & REFUSALS == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    await place.grant((of_group, G), (of_topic, T))
    assert not await place.ask(asked) & REFUSALS


STREAM = {"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": ["t"]}]}


@pytest.mark.parametrize(
    ("kind", "subscription"),
    [
        ("Consumer", {"subscribed_topic_names": ["t"], "rebalance_timeout_ms": 9000, "topic_partitions": []}),
        ("Share", {"subscribed_topic_names": ["t"]}),
        ("Streams", {"topology": STREAM, "process_id": "p", "rebalance_timeout_ms": 9000, "active_tasks": []}
         | {"standby_tasks": [], "warmup_tasks": [], "client_tags": []}),
    ],
)  # fmt: skip
async def test_describe_of_group_with_undescribable_topic_is_refused(
    place: Place, kind: str, subscription: dict[str, Any]
) -> None:
    await place.grant((Operation.READ, G), (Operation.DESCRIBE, T), (Operation.DELETE, G))
    assert await place.ask(row("DeleteGroups", "DELETE G", groups_names=["g"])) <= {0}
    joining = row(f"{kind}GroupHeartbeat", "READ G", group_id="g", member_id="m", **subscription)
    assert await place.ask(joining) <= {0}
    described = row(f"{kind}GroupDescribe", "DESCRIBE G", group_ids=["g"])
    await place.grant((Operation.DESCRIBE, G))
    assert await place.ask(described) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    await place.grant((Operation.DESCRIBE, G), (Operation.DESCRIBE, T))
    assert await place.ask(described) <= {0}


async def test_share_fetch_and_acknowledge_need_the_read_right_to_the_topic(place: Place) -> None:
    known = (await place.admin.wait_for_topic("t")).topic_id
    done = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
    fetched = [{"topic_id": known, "partitions": [{"partition_index": 0}]}]
    acknowledged = [{"topic_id": known, "partitions": [{"partition_index": 0, "acknowledgement_batches": [done]}]}]

    async def codes(api: str, **body: Any) -> set[int]:
        return await place.ask(row(api, "READ G", **body)) & REFUSALS

    await place.grant((Operation.READ, T))
    for api, body in (("ShareFetch", SHARING), ("ShareAcknowledge", MEMBER)):
        assert await codes(api, **body, topics=fetched) == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
    await place.grant((Operation.READ, G))
    assert await codes("ShareFetch", **SHARING, topics=fetched) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    refused = await codes("ShareAcknowledge", **MEMBER, share_session_epoch=1, topics=acknowledged)
    assert refused == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    await place.grant((Operation.READ, G), (Operation.READ, T))
    assert not await codes("ShareAcknowledge", **MEMBER, share_session_epoch=2, topics=acknowledged)


async def test_revoked_right_applies_to_open_share_sessions(place: Place) -> None:
    """An incremental ShareFetch is authorized for all partitions of its session."""
    known = (await place.admin.wait_for_topic("t")).topic_id
    await place.grant((Operation.READ, G), (Operation.READ, T))
    topics = [{"topic_id": known, "partitions": [{"partition_index": 0}]}]
    request = BY_NAME["ShareFetch"].request
    opened = await place.alice.call(built(request, {**SHARING, "topics": topics}))
    assert not codes_in(opened) & REFUSALS
    await place.grant((Operation.READ, G))
    async with Producer(place.cluster.bootstrap_servers, **ADMIN) as producer:
        await producer.send_and_wait("t", b"secret")
    answer = await place.alice.call(built(request, {**SHARING, "share_session_epoch": 1}))
    assert codes_in(answer) & REFUSALS == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert not any(one.records for topic in answer.responses for one in topic.partitions)


async def test_refused_topic_does_not_fail_another(place: Place) -> None:
    await place.grant((Operation.WRITE, T))
    data = [{"index": 0, "records": bytes(BATCH.build())}]
    topics = [{"name": "hidden", "partition_data": data}, {"name": "t", "partition_data": data}]
    request = built(BY_NAME["Produce"].request, {"acks": 1, "timeout_ms": 1000, "topic_data": topics})
    answer = await place.alice.call(request)
    codes = {topic.name: one.error_code for topic in answer.responses for one in topic.partition_responses}
    assert codes == {"hidden": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t": ErrorCode.NONE}


async def test_clients_work_with_the_rights_of_kafkas_clients(place: Place) -> None:
    await place.grant((Operation.WRITE, T), (Operation.READ, T), (Operation.READ, G))
    servers = place.cluster.bootstrap_servers
    async with Producer(servers, **ALICE) as producer:
        await producer.send_and_wait("t", b"last", key=b"k")
        with pytest.raises(KafkaError) as refused:
            await producer.send_and_wait("hidden", b"x")
        assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    async with Consumer(
        "t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", **ALICE
    ) as consumer:
        while (await anext(consumer)).value != b"last":
            pass
    with pytest.raises(KafkaError) as refused:
        async with Consumer("t", bootstrap_servers=servers, group_id="other", **ALICE) as consumer:
            await anext(consumer)
    assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


async def test_acl_change_reaches_every_running_broker() -> None:
    """Brokers authenticate as a super user; with prefixes, denials and a restart."""
    orders = ResourcePattern(T, "ord", PatternType.PREFIXED)
    allowed = Acl("User:alice", "*", Operation.READ, Permission.ALLOW)
    denied = Acl("User:alice", "127.0.0.1", Operation.READ, Permission.DENY)
    async with (
        Cluster(3, listeners=[f"{LISTENER}://127.0.0.1:0"], properties=PROPERTIES) as cluster,
        Admin(cluster.bootstrap_servers, **ADMIN) as admin,
    ):
        await admin.create_topics([NewTopic(name="orders", partitions=3, replication_factor=3)])
        await admin.create_acls([(orders, allowed)])

        def may_read() -> set[bool]:
            return {
                node.services.authorizer.allows("User:alice", "127.0.0.1", Operation.READ, T, "orders")
                for node in cluster.nodes.values()
                if node.services.authorizer is not None
            }

        await until(lambda: may_read() == {True})
        await admin.create_acls([(ResourcePattern(T, "orders"), denied)])
        await until(lambda: may_read() == {False})
        await cluster.stop_broker(2)
        assert await admin.delete_acls(AclFilter(permission=Permission.DENY)) == [
            (ResourcePattern(T, "orders"), denied)
        ]
        await cluster.start_broker(2)
        await until(lambda: may_read() == {True})
        assert await admin.describe_acls() == [(orders, allowed)]
