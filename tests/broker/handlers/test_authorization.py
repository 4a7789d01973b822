"""Every API needs exactly Kafka's permission, and refuses with Kafka's code.

Method: one broker with an authorizer, whose listener wants a password. For each row of the table alice asks without any
right, and again with just the ones that the row names. Source: the checks of `KafkaApis` in Kafka 3.9.
"""

from __future__ import annotations

from typing import Any

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.broker.dispatch.dispatcher import HANDLERS
from anabranch.clients.connection import Connection
from anabranch.clients.security_config import make_security
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourcePattern
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.handlers.authorization_rows import BATCH, ROWS, C, G, Row, T, X, partitions, request_for, row
from tests.broker.handlers.authorizing import ADMIN, ALICE, LISTENER, PROPERTIES, REFUSALS, Place, place
from tests.broker.serving import until
from tests.contracts.error_codes import codes_in

__all__ = ["place"]
NOTHING = {
    *("SaslHandshake", "ApiVersions", "SaslAuthenticate", "DescribeCluster", "Metadata", "Envelope"),
    *("GetTelemetrySubscriptions", "PushTelemetry"),
}
"""What may be asked by all: Metadata leaves out what is hidden, and has tests of its own."""
TOKENS = {"CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken"}
"""There are none, so there is nothing to protect."""
FILTERED = {"ListGroups", "ListTransactions"}
"""Never refused: they list what may be described."""


@pytest.mark.parametrize("asked", ROWS, ids=str)
async def test_request_needs_all_its_rights(place: Place, asked: Row) -> None:
    for count, code in enumerate(asked.codes):
        await place.grant(*asked.needs[:count])
        assert (await place.ask(asked)) & REFUSALS == {code}, f"with {count} of its rights"
    await place.grant(*asked.needs)
    assert not (await place.ask(asked)) & REFUSALS


async def test_type_of_a_resource_is_checked_before_the_rights_to_alter_it(place: Place) -> None:
    """As in Kafka 3.9 with ZooKeeper, which alters no client metrics (16) and no groups (32)."""
    await place.grant()
    for api in ("AlterConfigs", "IncrementalAlterConfigs"):
        for kind in (16, 32, 77):
            asked = row(api, "ALTER_CONFIGS C", resources=[{"resource_type": kind, "resource_name": "s"}])
            assert await place.ask(asked) == {ErrorCode.INVALID_REQUEST}, (api, kind)


@pytest.mark.parametrize("place", ["4.1"], indirect=True)
async def test_client_metrics_of_kafka_4_need_the_right_to_alter_the_cluster(place: Place) -> None:
    await place.grant()
    for api in ("AlterConfigs", "IncrementalAlterConfigs"):
        asked = row(api, "ALTER_CONFIGS C", resources=[{"resource_type": 16, "resource_name": "s"}])
        assert await place.ask(asked) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        await place.grant(*asked.needs)
        assert not (await place.ask(asked)) & REFUSALS
        await place.grant()


def test_every_api_has_an_authorization_row() -> None:
    covered = {one.api for one in ROWS}
    assert {one.name for one in HANDLERS} - covered == NOTHING | TOKENS | FILTERED


FORWARDED = {
    *("CreatePartitions", "ElectLeaders", "UpdateFeatures"),
    *("AlterPartitionReassignments", "ListPartitionReassignments"),
}


async def test_nodes_need_no_right_but_cluster_action(place: Place) -> None:
    """They list offsets as followers, coordinators and controllers, and forward requests whose rights they checked."""
    asked = [one for one in ROWS if one.api in FORWARDED | {"ListOffsets"}]
    assert {one.api for one in asked} == FORWARDED | {"ListOffsets"}
    await place.grant((Operation.CLUSTER_ACTION, C))
    for one in asked:
        assert not (await place.ask(one)) & REFUSALS, str(one)
    client = await Connection.open(*place.cluster.address(1), client_id="alice", security=make_security(**ALICE))
    for one in asked:
        codes = codes_in(await client.call(request_for(one.api, one.body), version=one.version))
        assert codes & REFUSALS, f"{one} of a client needs Kafka's right"
    await client.close()


async def test_topic_without_describe_right_is_answered_like_a_missing_one(place: Place) -> None:
    """Without DESCRIBE, a topic cannot be told from a missing one, except by its id."""
    await place.grant((Operation.READ, T))
    named = request_for("Metadata", {"topics": [{"name": one} for one in ("t", "hidden", "nowhere")]})
    rows = {one.name: one for one in (await place.alice.call(named, version=9)).topics}
    assert (rows["t"].error_code, len(rows["t"].partitions)) == (0, 1)
    assert {rows[one].error_code for one in ("hidden", "nowhere")} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert not any(rows[one].partitions or rows[one].is_internal for one in ("hidden", "nowhere"))
    every = await place.alice.call(request_for("Metadata", {"topics": None}))
    assert [one.name for one in every.topics] == ["t"]
    hidden_id = place.cluster.nodes[1].services.metadata.topic_id("hidden")
    by_id = request_for("Metadata", {"topics": [{"name": None, "topic_id": hidden_id}]})
    (topic,) = (await place.alice.call(by_id, version=12)).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, hidden_id)


async def test_coordinated_partitions_are_listed_only_with_a_right_to_the_cluster(place: Place) -> None:
    """A missing permission must not look like a topic without readers."""
    request = request_for("ListGroups", {"readers_of": "t"})
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
    request = request_for("Metadata", {"topics": [{"name": "t"}, {"name": "hidden"}], **asking})
    answer = await place.alice.call(request, version=8)
    authorized = {one.name: one.topic_authorized_operations for one in answer.topics}
    assert authorized == {"t": 1 << Operation.READ | 1 << Operation.DESCRIBE, "hidden": -(2**31)}
    assert answer.cluster_authorized_operations == 0, "who may not describe the cluster"
    groups = request_for("DescribeGroups", {"groups": ["g"], "include_authorized_operations": True})
    (group,) = (await place.alice.call(groups)).groups
    assert group.authorized_operations == 1 << Operation.DELETE | 1 << Operation.DESCRIBE


async def test_refused_offset_fetch_v1_is_empty(place: Place) -> None:
    """Version 1 has no group-level error code, and Kafka sets no other."""
    await place.grant((Operation.DESCRIBE, T))
    fields = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
    answer = await place.alice.call(request_for("OffsetFetch", fields), version=1)
    assert (answer.error_code, answer.topics) == (0, [])


async def test_write_right_to_any_topic_allows_init_producer_id(place: Place) -> None:
    """KIP-679: idempotent producers need no permission of their own."""
    request = request_for("InitProducerId", {"transactional_id": None, "producer_id": -1, "producer_epoch": -1})
    await place.grant((Operation.WRITE, T))
    assert (await place.alice.call(request)).error_code == ErrorCode.NONE


async def test_revoked_right_applies_to_open_fetch_sessions(place: Place) -> None:
    """An incremental Fetch is authorized for all partitions of its session."""
    await place.grant((Operation.READ, T))
    fields = {"replica_id": -1, "min_bytes": 1, "max_bytes": 1000, "session_epoch": 0}
    topics = partitions("topic", partition_max_bytes=100)
    opened = await place.alice.call(request_for("Fetch", {**fields, "topics": topics}), version=11)
    assert opened.session_id
    await place.grant()
    going_on = {**fields, "session_id": opened.session_id, "session_epoch": 1}
    async with Producer(place.cluster.bootstrap_servers, **ADMIN) as producer:
        await producer.send_and_wait("t", b"secret")
    answer = await place.alice.call(request_for("Fetch", going_on), version=11)
    assert codes_in(answer) & REFUSALS == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert not any(one.records for topic in answer.responses for one in topic.partitions)


MEMBER = {"group_id": "g", "member_id": "AAAAAAAAAAAAAAAAAAAAAQ"}
SHARING = {**MEMBER, "min_bytes": 1, "max_bytes": 1000, "batch_size": 100}


@pytest.mark.parametrize(
    ("api", "of_group", "of_topic", "topic"),
    [
        (
            "AlterShareGroupOffsets",
            Operation.READ,
            Operation.READ,
            {"partitions": [{"partition_index": 0}, {"partition_index": 1}]},
        ),
        ("DescribeShareGroupOffsets", Operation.DESCRIBE, Operation.DESCRIBE, {"partitions": [0, 1]}),
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
    hidden = await place.ask(asked) - {ErrorCode.NONE}
    assert hidden == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}, "nothing tells which partitions exist"
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
    opened = await place.alice.call(request_for("ShareFetch", {**SHARING, "topics": topics}))
    assert not codes_in(opened) & REFUSALS
    await place.grant((Operation.READ, G))
    async with Producer(place.cluster.bootstrap_servers, **ADMIN) as producer:
        await producer.send_and_wait("t", b"secret")
    answer = await place.alice.call(request_for("ShareFetch", {**SHARING, "share_session_epoch": 1}))
    assert codes_in(answer) & REFUSALS == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert not any(one.records for topic in answer.responses for one in topic.partitions)


async def test_refused_topic_does_not_fail_another(place: Place) -> None:
    await place.grant((Operation.WRITE, T))
    data = [{"index": 0, "records": bytes(BATCH.build())}]
    topics = [{"name": "hidden", "partition_data": data}, {"name": "t", "partition_data": data}]
    request = request_for("Produce", {"acks": 1, "timeout_ms": 1000, "topic_data": topics})
    answer = await place.alice.call(request)
    codes = {topic.name: one.error_code for topic in answer.responses for one in topic.partition_responses}
    assert codes == {"hidden": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t": ErrorCode.NONE}


async def test_produce_that_is_refused_as_a_whole_is_answered_for_refused_topics_too(place: Place) -> None:
    await place.grant((Operation.WRITE, T), (Operation.WRITE, X))
    data = [{"index": 0, "records": bytes(BATCH.build(producer, 0, 0, transactional=True))} for producer in (7, 8)]
    topics = [{"name": "hidden", "partition_data": data[:1]}, {"name": "t", "partition_data": data}]
    request = request_for("Produce", {"transactional_id": "x", "acks": 1, "timeout_ms": 1000, "topic_data": topics})
    answer = await place.alice.call(request)
    rows = [(topic.name, one.error_code) for topic in answer.responses for one in topic.partition_responses]
    assert sorted(set(rows)) == [(name, ErrorCode.INVALID_PRODUCER_ID_MAPPING) for name in ("hidden", "t")], "as Kafka"


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
