"""What differs for clients of profile 4: no controller, features, topic ids, pages of partitions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch.broker.profiles.profile import profile_for
from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.add_raft_voter import AddRaftVoterRequest, Listener
from anabranch.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from anabranch.protocol.apis.api_versions import ApiVersionsRequest
from anabranch.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from anabranch.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from anabranch.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.protocol.apis.describe_cluster import DescribeClusterRequest
from anabranch.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from anabranch.protocol.apis.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from anabranch.protocol.apis.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.init_producer_id import InitProducerIdRequest
from anabranch.protocol.apis.list_config_resources import ListConfigResourcesRequest
from anabranch.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from anabranch.protocol.apis.list_transactions import ListTransactionsRequest
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from anabranch.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest
from anabranch.protocol.apis.unregister_broker import UnregisterBrokerRequest
from anabranch.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.wire import ZERO_UUID

pytestmark = pytest.mark.timeout(60)
NOWHERE = b"n" * 16


def new_topic(name: str, partitions: int = 1, replicas: int = 1) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=[])


class Stranger:
    """A client of no software of ours, with a connection to each broker."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._connections: dict[int, Connection] = {}

    async def ask(self, request: Any, version: int, at: int = 1) -> Any:
        known = self._connections.get(at)
        if known is None or known.closed:
            known = self._connections[at] = await Connection.open(
                *self.cluster.address(at), client_id="t", software_name="stranger"
            )
        return await known.call(request, version=version)

    async def create(self, name: str, partitions: int = 1, at: int = 1) -> bytes:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        row = (await self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30000), 7, at)).topics[0]
        assert row.error_code == 0, row
        return bytes(row.topic_id)

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()


@asynccontextmanager
async def stranger(kafka: str, brokers: int = 1) -> AsyncIterator[Stranger]:
    async with Cluster(brokers, kafka=kafka) as cluster:
        one = Stranger(cluster)
        yield one
        await one.close()


def controller_of(cluster: Cluster) -> int:
    return next(n for n, node in cluster.nodes.items() if node.controller is not None and node.controller.active)


async def test_every_broker_forwards_controller_requests_and_is_named_as_controller() -> None:
    async with stranger("4.1", 3) as client:
        other = next(one for one in (1, 2, 3) if one != controller_of(client.cluster))
        await client.create("t", at=other)
        grow = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)], timeout_ms=30000, validate_only=False
        )
        assert (await client.ask(grow, 3, other)).results[0].error_code == 0
        move = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[1])])]
        )
        assert (await client.ask(move, 1, other)).responses[0].partitions[0].error_code == 0
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=30000)
        assert (await client.ask(gone, 6, other)).responses[0].error_code == 0
        described = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
        shown = {(await client.ask(described, 2)).controller_id for _ in range(60)}
        shown |= {(await client.ask(MetadataRequest(topics=[]), 13)).controller_id for _ in range(60)}
        assert shown == {1, 2, 3}


async def test_forwarded_request_without_a_controller_times_out() -> None:
    async with stranger("4.1", 2) as client:
        node = client.cluster.nodes[2]
        for one in client.cluster.nodes.values():
            assert one.controller is not None
            await one.controller.stop()
        grow = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)], timeout_ms=200, validate_only=False
        )
        answer = await client.ask(grow, 3, node.settings.node_id)
        assert answer.results[0].error_code == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize(
    ("kafka", "supported", "finalized"),
    [
        ("3.9", {"reshard.version"}, {"reshard.version": 1}),
        ("3.5", set(), {}),
        (
            "4.1",
            {
                *("eligible.leader.replicas.version", "group.version", "kraft.version", "metadata.version"),
                *("share.version", "transaction.version"),
            },
            {name: level for name, level in profile_for("4.1").finalized_features.items() if level},
        ),
    ],
)
async def test_advertised_features_are_those_of_the_kafka_version(
    kafka: str, supported: set[str], finalized: dict[str, int]
) -> None:
    async with stranger(kafka) as client:
        hello = ApiVersionsRequest(client_software_name="stranger", client_software_version="1")
        newest = 4 if kafka >= "3.9" else 3
        while True:
            response = await client.ask(hello, newest)
            if response.finalized_features_epoch >= 0:
                break
        assert {one.name for one in response.supported_features} == supported
        assert {one.name: one.max_version_level for one in response.finalized_features} == finalized
        if kafka == "4.1":
            early = await client.ask(hello, 3)
            assert {one.name for one in early.supported_features} == {"metadata.version"}


def features(*updates: tuple[str, int, int], validate_only: bool = False) -> UpdateFeaturesRequest:
    rows = [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates]
    return UpdateFeaturesRequest(feature_updates=rows, validate_only=validate_only)


async def test_feature_updates_are_all_or_nothing() -> None:
    async with stranger("4.1", 2) as client:
        wrong = {
            ("group.version", 5, 1): "only supports versions 0-1",
            ("nope", 1, 1): "does not support this feature",
            ("group.version", 0, 1): "Can't downgrade the version of this feature",
            ("share.version", 1, 2): "Can't downgrade to a newer version",
            ("share.version", 1, 0): "does not support the given upgrade type",
            ("share.version", -1, 2): "cannot be less than 0",
        }
        for update, says in wrong.items():
            answer = await client.ask(features(("share.version", 1, 1), update), 2)
            assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION and says in answer.error_message, update
            assert client.cluster.nodes[1].services.features.level("share.version") == 0
        answer = await client.ask(features(("share.version", 1, 1), validate_only=True), 2, 2)
        assert (answer.error_code, answer.results) == (0, [])
        answer = await client.ask(features(("share.version", 1, 1)), 1, 2)
        assert [(row.feature, row.error_code, row.error_message) for row in answer.results] == [
            ("share.version", 0, "NONE")
        ]
        while client.cluster.nodes[1].services.features.level("share.version") != 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert (await client.ask(features(("share.version", 0, 3)), 2)).error_code == 0
        while client.cluster.nodes[2].services.features.level("share.version") != 0:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_new_cluster_finalizes_the_features_of_its_oldest_broker() -> None:
    async with Cluster(2, kafka={1: "4.1", 2: "3.9"}) as cluster:
        client = Stranger(cluster)
        answer = await client.ask(features(("transaction.version", 1, 1)), 2)
        assert "Broker 2 does not support" in answer.error_message
        await cluster.stop_broker(2)
        await cluster.start_broker(2, {"kafka.version": "4.1"})
        assert (await client.ask(features(("transaction.version", 1, 1)), 2)).error_code == 0
        await client.close()


async def test_topic_partitions_are_described_in_pages() -> None:
    def page(*names: str, limit: int = 2000, cursor: Cursor | None = None) -> DescribeTopicPartitionsRequest:
        topics = [TopicRequest(name=name) for name in names]
        return DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)

    async with stranger("4.0") as client:
        for name in ("b", "a", "c"):
            await client.create(name, 3)
        seen, cursor, pages = [], None, 0
        while True:
            answer = await client.ask(page(limit=4, cursor=cursor), 0)
            seen += [(topic.name, row.partition_index) for topic in answer.topics for row in topic.partitions]
            cursor, pages = answer.next_cursor, pages + 1
            if cursor is None:
                break
        assert seen == [(name, index) for name in ("a", "b", "c") for index in range(3)] and pages == 3
        answer = await client.ask(page("c", "nope", "no/name", "a"), 0)
        codes = [(row.name, row.error_code) for row in answer.topics]
        assert codes == [("a", 0), ("c", 0), ("no/name", ErrorCode.INVALID_TOPIC_EXCEPTION), ("nope", 3)]
        exactly = await client.ask(page("a", "b", limit=3), 0)
        assert exactly.next_cursor == Cursor(topic_name="b", partition_index=0)
        for wrong in (Cursor(topic_name="z", partition_index=0), Cursor(topic_name="a", partition_index=-1)):
            refused = await client.ask(page("a", cursor=wrong), 0)
            assert [row.error_code for row in refused.topics] == [ErrorCode.INVALID_REQUEST]
        behind = await client.ask(page("a", cursor=Cursor(topic_name="a", partition_index=9)), 0)
        assert behind.topics[0].partitions == [] and behind.next_cursor is None


async def test_described_partitions_of_a_resized_topic_equal_metadata() -> None:
    async with stranger("4.1") as client:
        await client.create("t", 2)
        grow = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=5, assignments=None)], timeout_ms=30000, validate_only=False
        )
        assert (await client.ask(grow, 3)).results[0].error_code == 0
        known = (await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)).topics[0]
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
        described = (await client.ask(request, 0)).topics[0]
        assert described.topic_id == known.topic_id
        assert [(row.partition_index, row.leader_epoch) for row in described.partitions] == sorted(
            (row.partition_index, row.leader_epoch) for row in known.partitions
        )
        assert len(described.partitions) == 5


async def test_config_resources_are_listed_by_type() -> None:
    async with stranger("4.1", 2) as client:
        await client.create("t")

        async def listed(*kinds: int, version: int = 1) -> list[tuple[int, str]]:
            answer = await client.ask(ListConfigResourcesRequest(resource_types=list(kinds)), version)
            assert answer.error_code == 0
            return [(row.resource_type, row.resource_name) for row in answer.config_resources]

        assert await listed() == [(8, "1"), (8, "2"), (4, "1"), (4, "2"), (2, "t")]
        assert await listed(4) == [(4, "1"), (4, "2")]
        assert await listed(16, 32) == [] and await listed(version=0) == []
        strange = await client.ask(ListConfigResourcesRequest(resource_types=[2, 99]), 1)
        assert strange.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_described_quorum_has_all_brokers_and_the_controller_as_leader() -> None:
    def request_of(name: str, index: int) -> DescribeQuorumRequest:
        partition = RequestPartitionData(partition_index=index)
        return DescribeQuorumRequest(topics=[RequestTopicData(topic_name=name, partitions=[partition])])

    async with stranger("4.0", 2) as client:
        first = await client.ask(request_of("__cluster_metadata", 0), 2)
        row = first.topics[0].partitions[0]
        assert row.leader_id == controller_of(client.cluster)
        assert [one.replica_id for one in row.current_voters] == [1, 2] == [one.node_id for one in first.nodes]
        await client.create("t")
        second = (await client.ask(request_of("__cluster_metadata", 0), 0)).topics[0].partitions[0]
        assert second.high_watermark > row.high_watermark
        for name, index in (("t", 0), ("__cluster_metadata", 1)):
            assert (await client.ask(request_of(name, index), 2)).topics[0].partitions[0].error_code == 3
        voter = {"voter_id": 9, "voter_directory_id": NOWHERE}
        where = [Listener(name="CONTROLLER", host="h", port=1)]
        add = AddRaftVoterRequest(cluster_id=None, timeout_ms=1, listeners=where, **voter)
        assert "kraft.version feature is 0" in (await client.ask(add, 0)).error_message
        add.listeners = []
        assert (await client.ask(add, 0)).error_code == ErrorCode.INVALID_REQUEST
        remove = RemoveRaftVoterRequest(cluster_id="another", **voter)
        assert (await client.ask(remove, 0)).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        remove.cluster_id = None
        assert (await client.ask(remove, 0)).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await client.ask(UnregisterBrokerRequest(broker_id=9), 0)).error_code == 102
        assert (await client.ask(UnregisterBrokerRequest(broker_id=2), 0)).error_code == 0


async def test_produce_accepts_topic_ids() -> None:
    builder = BatchBuilder()
    builder.append(b"k", b"v", (), 1_700_000_000_000)
    records = bytes(builder.build())

    def to(*ids: bytes, acks: int = 1) -> ProduceRequest:
        rows = [
            TopicProduceData(topic_id=one, partition_data=[PartitionProduceData(index=0, records=records)])
            for one in ids
        ]
        return ProduceRequest(acks=acks, timeout_ms=30000, topic_data=rows)

    async with stranger("4.1") as client:
        mine = await client.create("t")
        answer = await client.ask(to(NOWHERE, mine, ZERO_UUID, acks=-1), 13)
        codes = {row.topic_id: row.partition_responses[0].error_code for row in answer.responses}
        assert codes == {mine: 0, NOWHERE: ErrorCode.UNKNOWN_TOPIC_ID, ZERO_UUID: ErrorCode.UNKNOWN_TOPIC_ID}
        read = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        fetch = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic_id=mine, partitions=[read])])
        fetched = (await client.ask(fetch, 18)).responses[0].partitions[0]
        assert len(fetched.records) == len(records)
        with pytest.raises(ConnectionError):
            await client.ask(to(NOWHERE, acks=0), 13)  # no answer but the end
            await client.ask(to(mine), 13)


async def test_offset_commit_and_fetch_accept_topic_ids() -> None:
    async with stranger("4.2") as client:
        mine = await client.create("t")
        find = FindCoordinatorRequest(key="g", coordinator_keys=["g"])
        while (await client.ask(find, 6)).coordinators[0].error_code != 0:
            pass
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
        topics = [OffsetCommitRequestTopic(topic_id=one, partitions=[partition]) for one in (mine, NOWHERE)]
        while True:
            answer = await client.ask(OffsetCommitRequest(group_id="g", topics=topics), 10)
            codes = {row.topic_id: row.partitions[0].error_code for row in answer.topics}
            if codes[mine] not in (14, 15, 16):
                break
        assert codes == {mine: 0, NOWHERE: ErrorCode.UNKNOWN_TOPIC_ID}
        for wanted in (
            None,
            [OffsetFetchRequestTopics(topic_id=one, partition_indexes=[0]) for one in (mine, NOWHERE)],
        ):
            fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=wanted)])
            (group,) = (await client.ask(fetch, 10)).groups
            found = {
                row.topic_id: (row.partitions[0].committed_offset, row.partitions[0].error_code) for row in group.topics
            }
            assert found == {mine: (7, 0)} | ({} if wanted is None else {NOWHERE: (-1, ErrorCode.UNKNOWN_TOPIC_ID)})


async def test_tiered_storage_offset_is_none_in_versions_that_have_it() -> None:
    topic = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-6)])
    async with stranger("4.2") as client:
        await client.create("t")
        answers = [
            (await client.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), version)).topics[0].partitions[0]
            for version in (10, 11)
        ]
        assert [row.error_code for row in answers] == [ErrorCode.UNSUPPORTED_VERSION, 0]
        assert answers[1].offset == -1


async def test_reassignment_may_forbid_a_changed_replication_factor() -> None:
    async with stranger("4.1", 2) as client:
        await client.create("t")
        rows = [ReassignablePartition(partition_index=0, replicas=[1, 2])]
        move = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="t", partitions=rows)], allow_replication_factor_change=False
        )
        answer = await client.ask(move, 1)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert answer.allow_replication_factor_change is False
        move.allow_replication_factor_change = True
        assert (await client.ask(move, 1)).responses[0].partitions[0].error_code == 0


async def test_duplicate_resources_are_refused_once() -> None:
    async with stranger("4.1") as client:
        await client.create("t")
        twice = [DeleteTopicState(name="t", topic_id=ZERO_UUID)] * 2
        (row,) = (await client.ask(DeleteTopicsRequest(topics=twice, timeout_ms=9000), 6)).responses
        assert (row.name, row.error_code) == ("t", ErrorCode.INVALID_REQUEST) and row.error_message
        known = (await client.ask(MetadataRequest(topics=None), 13)).topics[0]
        both = [twice[0], DeleteTopicState(name=None, topic_id=known.topic_id)]
        (row,) = (await client.ask(DeleteTopicsRequest(topics=both, timeout_ms=9000), 6)).responses
        assert (row.topic_id, row.error_code) == (known.topic_id, ErrorCode.INVALID_REQUEST)
        topics = [new_topic("a"), new_topic("b"), new_topic("a")]
        made = (await client.ask(CreateTopicsRequest(topics=topics, timeout_ms=9000), 7)).topics
        assert {row.name: row.error_code for row in made} == {"a": ErrorCode.INVALID_REQUEST, "b": 0}
        assert len(made) == 2
        gone = [DeleteTopicState(name="t", topic_id=ZERO_UUID), DeleteTopicState(name="no", topic_id=ZERO_UUID)]
        found = (await client.ask(DeleteTopicsRequest(topics=gone, timeout_ms=9000), 6)).responses
        assert [(row.name, row.topic_id, row.error_code) for row in found] == [
            ("t", known.topic_id, 0),
            ("no", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]


async def test_topics_with_impossible_replicas_are_refused() -> None:
    async with stranger("4.1") as client:
        for assigned in ([(0, [1]), (0, [1])], [(0, [77])]):
            rows = [CreatableReplicaAssignment(partition_index=one, broker_ids=ids) for one, ids in assigned]
            topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=rows, configs=[])
            row = (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=9000), 7)).topics[0]
            assert row.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT and row.error_message
        row = (await client.ask(CreateTopicsRequest(topics=[new_topic("t", 0, 0)], timeout_ms=9000), 7)).topics[0]
        assert row.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


async def test_transactional_ids_are_listed_by_a_pattern() -> None:
    async with stranger("4.1") as client:
        for name in ("orders-1", "orders-2", "invoices"):
            init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            find = FindCoordinatorRequest(coordinator_keys=[name], key_type=1)
            while (await client.ask(find, 6)).coordinators[0].error_code or (await client.ask(init, 5)).error_code:
                pass

        async def listed(pattern: str | None) -> tuple[int, set[str]]:
            request = ListTransactionsRequest(
                state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern
            )
            answer = await client.ask(request, 2)
            return answer.error_code, {one.transactional_id for one in answer.transaction_states}

        everything = {"orders-1", "orders-2", "invoices"}
        assert await listed(None) == await listed("") == await listed(".*") == (0, everything)
        assert await listed(r"orders-\d") == (0, {"orders-1", "orders-2"})
        assert await listed("orders") == (0, set())
        assert await listed("(") == (ErrorCode.INVALID_REGULAR_EXPRESSION, set())


@pytest.mark.parametrize(("kafka", "source"), [("4.0", 5), ("4.1", 3)])
async def test_eligible_leader_replicas_set_min_insync_replicas_as_cluster_default(kafka: str, source: int) -> None:
    async with stranger(kafka) as client:
        key = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=["min.insync.replicas"])
        while True:
            answer = await client.ask(DescribeConfigsRequest(resources=[key], include_synonyms=True), 4)
            (row,) = answer.results[0].configs
            if row.config_source == source:
                break
            await asyncio.sleep(0.05)
        assert (row.value, row.config_source) == ("1", source)
