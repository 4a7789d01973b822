"""A cluster in one process: brokers that stop, crash and restart, and sessions that expire."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch import Producer
from anabranch.broker.config.broker_settings import ConfigError
from anabranch.broker.node import app
from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from anabranch.protocol.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from anabranch.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from anabranch.protocol.apis.update_metadata import UpdateMetadataRequest
from anabranch.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from anabranch.protocol.connection import NODE_SOFTWARE
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.batch_builder import BatchBuilder
from tests.anabranch.clock.test_process import on_clock

pytestmark = pytest.mark.timeout(60)


@asynccontextmanager
async def connected(cluster: Cluster, node_id: int) -> AsyncIterator[Connection]:
    """A connection to one broker."""
    connection = await Connection.open("127.0.0.1", cluster.nodes[node_id].port, client_id="test")
    try:
        yield connection
    finally:
        await connection.close()


async def ask(cluster: Cluster, node_id: int, request: Any, version: int | None = None) -> Any:
    """One request to one broker."""
    async with connected(cluster, node_id) as connection:
        return await connection.call(request, version=version)


def active_controller(cluster: Cluster) -> int:
    """The node whose controller is active."""
    (active,) = (n for n, node in cluster.nodes.items() if node.controller is not None and node.controller.active)
    return active


async def create(cluster: Cluster, name: str, partitions: int = 1, replicas: int = 3, **configs: str) -> Any:
    """CreateTopics at the controller; its row."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    response = await ask(cluster, active_controller(cluster), CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
    return response.topics[0]


async def describe(cluster: Cluster, name: str, node_id: int | None = None) -> MetadataResponseTopic:
    """Return a broker's description of a topic."""
    node_id = node_id or next(iter(cluster.nodes))
    asked = [MetadataRequestTopic(name=name)]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False, generation_aware=True)
    response = await ask(cluster, node_id, request)
    topic: MetadataResponseTopic = response.topics[0]
    return topic


async def leader(cluster: Cluster, name: str, *, other_than: int = -1, index: int = 0) -> int:
    """The leader of a partition, once there is one."""
    while True:
        for row in (await describe(cluster, name)).partitions:
            if row.partition_index == index and row.leader_id not in (-1, other_than):
                return row.leader_id
        await asyncio.sleep(0.01)  # what a client would do


def batch(value: bytes) -> bytes:
    """One record."""
    builder = BatchBuilder()
    builder.append(b"k", value, (), 1_700_000_000_000)
    return bytes(builder.build())


async def produce(cluster: Cluster, name: str, value: bytes, *, at: int) -> tuple[int, int]:
    """acks=all to one broker, again while it leads and has not heard of it yet; error code and offset."""
    data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch(value))])
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data])
    while True:
        row = (await ask(cluster, at, request, version=9)).responses[0].partition_responses[0]
        unheard = row.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not unheard or await leader(cluster, name) != at:
            return row.error_code, row.base_offset
        await asyncio.sleep(0.01)  # what a client would do


async def fetch(cluster: Cluster, name: str, *, at: int) -> bytes:
    """All records of partition 0."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic=name, partitions=[partition])
    request = FetchRequest(replica_id=-1, max_wait_ms=30_000, min_bytes=1, topics=[topic])
    response = await ask(cluster, at, request, version=12)
    return bytes(response.responses[0].partitions[0].records or b"")


async def test_acknowledged_records_survive_leader_failure() -> None:
    async with Cluster(3) as cluster:
        assert (await create(cluster, "t", min_insync_replicas="2")).error_code == 0
        first = await leader(cluster, "t")
        assert await produce(cluster, "t", b"one", at=first) == (0, 0)
        await cluster.crash_broker(first)
        second = await leader(cluster, "t", other_than=first)
        assert await produce(cluster, "t", b"two", at=second) == (0, 1)
        assert b"one" in await fetch(cluster, "t", at=second)
        await cluster.start_broker(first)
        while len((await describe(cluster, "t")).partitions[0].isr_nodes) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await cluster.stop_broker(second)
        third = await leader(cluster, "t", other_than=second)
        while b"two" not in (records := await fetch(cluster, "t", at=third)):
            pass  # what it may show, a new leader learns from its followers
        assert b"one" in records


async def test_controlled_shutdown_moves_leaders_before_broker_stops() -> None:
    async with Cluster(3) as cluster:
        await create(cluster, "t", partitions=6)
        stopping = active_controller(cluster) % 3 + 1
        watcher = next(node for n, node in cluster.nodes.items() if n != stopping)
        leaderless: list[bool] = []
        watcher.services.metadata.on_change(
            lambda before, after: leaderless.append(any(p.leader == -1 for p in after.topics["t"].partitions.values()))
        )
        await cluster.stop_broker(stopping)
        assert leaderless
        assert not any(leaderless)
        topic = await describe(cluster, "t")
        assert stopping not in {row.leader_id for row in topic.partitions}


@on_clock
async def test_cancelled_start_stops_a_node_that_has_just_started(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[app.Node] = []
    start_node = app.Node.start

    async def start(node: app.Node) -> None:
        await start_node(node)
        started.append(node)
        asyncio.get_running_loop().call_soon(starting.cancel)  # runs before the cluster's own task does

    monkeypatch.setattr(app.Node, "start", start)
    cluster = Cluster(1)
    starting = asyncio.create_task(cluster.start())
    with pytest.raises(asyncio.CancelledError):
        await starting
    await cluster.stop()
    assert [acceptor.sockets for acceptor in started[0].server._acceptors] == [()]


async def test_controller_failover_elects_another_broker() -> None:
    async with Cluster(3) as cluster:
        first = active_controller(cluster)
        await cluster.crash_broker(first)
        some = next(iter(cluster.nodes.values()))
        assert await some.services.metadata.wait_until(lambda image: image.controller_id in cluster.nodes, 60_000)
        assert active_controller(cluster) != first
        assert (await create(cluster, "after", replicas=2)).error_code == 0


async def test_node_with_expired_session_reregisters_with_new_epoch() -> None:
    """Expires the session of the active controller."""
    async with Cluster(3) as cluster:
        await create(cluster, "t")
        victim = active_controller(cluster)
        node = cluster.nodes[victim]
        epoch = node.services.fence.broker_epoch
        cluster.zookeeper.expire(node.session)  # type: ignore[arg-type]
        other = next(one for n, one in cluster.nodes.items() if n != victim)
        known = await other.services.metadata.wait_until(
            lambda image: victim in image.brokers and image.brokers[victim].epoch > epoch, 60_000
        )
        assert known
        assert node.services.fence.broker_epoch > epoch
        at = await leader(cluster, "t")
        assert (await produce(cluster, "t", b"x", at=at))[0] == 0


async def test_node_stops_without_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts every session, then stops cleanly."""
    monkeypatch.setattr(app, "STEP_S", 0.2)
    monkeypatch.setattr(app, "CONTROLLED_SHUTDOWN_S", 0.2)
    cluster = Cluster(2)
    await cluster.start()
    for node in cluster.nodes.values():
        node.session.lose_connection()  # type: ignore[arg-type]
    await cluster.stop_broker(active_controller(cluster))
    await cluster.stop()


async def test_topics_are_created_validated_and_deleted() -> None:
    async with Cluster(3) as cluster:
        row = await create(cluster, "t", partitions=4, retention_ms="1000")
        assert (row.error_code, row.num_partitions, row.replication_factor) == (0, 4, 3)
        shown = {config.name: (config.value, config.config_source) for config in row.configs}
        assert shown["retention.ms"] == ("1000", 1)
        assert (await create(cluster, "t")).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert (await create(cluster, "u", replicas=4)).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=["retention.ms"])
        for node_id in cluster.nodes:
            response = await ask(cluster, node_id, DescribeConfigsRequest(resources=[resource]))
            assert [(one.name, one.value) for one in response.results[0].configs] == [("retention.ms", "1000")]
        topic_id = (await describe(cluster, "t")).topic_id
        request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=60_000)
        response = await ask(cluster, active_controller(cluster), request)
        assert (response.responses[0].name, response.responses[0].error_code) == ("t", 0)
        assert (await describe(cluster, "t")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        response = await ask(cluster, active_controller(cluster), request)
        assert response.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert (await create(cluster, "t", partitions=1)).error_code == 0
        assert (await describe(cluster, "t")).topic_id != topic_id


async def test_validate_only_and_timeouts() -> None:
    async with Cluster(1) as cluster:
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=-1, assignments=[], configs=[])
        request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000, validate_only=True)
        row = (await ask(cluster, 1, request)).topics[0]
        assert (row.error_code, row.num_partitions) == (0, 2)
        assert (await describe(cluster, "t")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        row = (await ask(cluster, 1, CreateTopicsRequest(topics=[topic], timeout_ms=0))).topics[0]
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
        await leader(cluster, "t")
        twice = CreateTopicsRequest(topics=[topic, topic], timeout_ms=0)
        assert [row.error_code for row in (await ask(cluster, 1, twice)).topics] == [ErrorCode.INVALID_REQUEST] * 2


async def test_admin_requests_go_to_the_controller() -> None:
    async with Cluster(3) as cluster:
        await create(cluster, "t")
        other = active_controller(cluster) % 3 + 1
        grow = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=2, assignments=None)],
            timeout_ms=60_000,
            validate_only=False,
        )
        response = await ask(cluster, other, grow)
        assert response.results[0].error_code == ErrorCode.NOT_CONTROLLER
        topic = CreatableTopic(name="u", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        response = await ask(cluster, other, CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
        assert response.topics[0].error_code == ErrorCode.NOT_CONTROLLER
        response = await ask(cluster, active_controller(cluster), grow)
        assert response.results[0].error_code == 0
        row = await describe(cluster, "t", active_controller(cluster))
        assert (len(row.partitions), row.generation, row.base) == (2, 1, 1)


async def test_offsets_topic_is_created_for_first_group() -> None:
    async with Cluster(3) as cluster:
        while (
            (found := await ask(cluster, 2, FindCoordinatorRequest(coordinator_keys=["g"]))).coordinators[0].error_code
        ):
            assert found.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert found.coordinators[0].node_id in cluster.nodes
        topic = await describe(cluster, "__consumer_offsets")
        assert topic.is_internal
        assert {len(row.replica_nodes) for row in topic.partitions} == {3}


@pytest.mark.parametrize("key_type", [0, 1])
async def test_coordinator_is_found_after_broker_failure_before_first_group(key_type: int) -> None:
    async with Cluster(3, kafka="4.1") as cluster:
        await cluster.crash_broker(3)
        await cluster.nodes[1].services.metadata.wait_until(lambda image: 3 not in image.brokers, 30_000)
        request = FindCoordinatorRequest(coordinator_keys=["g"], key_type=key_type)
        while (found := (await ask(cluster, 1, request)).coordinators[0]).error_code:
            assert "Replication factor" not in (found.error_message or "")
        assert found.node_id in (1, 2)


async def test_starting_cluster_creates_no_under_replicated_internal_topic() -> None:
    """A client that connects to the first broker of three would otherwise leave the topic with one replica."""
    cluster = Cluster(3)
    await cluster._running.start(1)
    try:
        request = FindCoordinatorRequest(coordinator_keys=["g"])
        await cluster.nodes[1].services.metadata.wait_until(lambda image: bool(image.brokers), 30_000)
        found = (await ask(cluster, 1, request)).coordinators[0]
        assert (found.error_code, found.error_message) == (
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            "Replication factor: 3 larger than available brokers: 1.",
        )
    finally:
        await cluster.stop()


async def test_cluster_with_a_directory_can_be_restarted(tmp_path: Path) -> None:
    """Three runs; each finds and adds a record."""
    epochs = []
    for life in range(3):
        async with Cluster(2, data_dir=tmp_path) as cluster:
            if life == 0:
                await create(cluster, "t", replicas=2, retention_ms="-1")
            at = await leader(cluster, "t")
            assert await produce(cluster, "t", b"life-%d" % life, at=at) == (0, life)
            records = await fetch(cluster, "t", at=at)
            assert all(b"life-%d" % past in records for past in range(life + 1))
            row = (await describe(cluster, "t")).partitions[0]
            epochs.append((row.leader_epoch, cluster.nodes[at].services.fence.broker_epoch))
            assert cluster.nodes[at].services.topic_configs.get("t").retention_ms == -1
    assert epochs == sorted(set(epochs)), "epochs only grow"


@pytest.mark.parametrize("brokers", [0, -1, "3", True])
def test_number_of_brokers_that_no_cluster_has_is_refused(brokers: object) -> None:
    with pytest.raises(ConfigError, match="brokers must be a number of at least 1, not "):
        Cluster(brokers)  # type: ignore[arg-type]


async def test_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    async with Cluster(1, data_dir=tmp_path):
        pass
    properties = tmp_path / "broker-1" / "meta.properties"
    properties.write_text(properties.read_text().replace("broker.id=1", "broker.id=7"))
    with pytest.raises(ConfigError, match=r"belongs to broker\.id 7, but this node has broker\.id 1"):
        async with Cluster(1, data_dir=tmp_path):
            pass


async def test_broker_ids_start_at_configured_id() -> None:
    """Test suites for broker id 0 find it in Metadata and DescribeConfigs."""
    async with Cluster(2, properties={"broker.id": "0"}) as cluster:
        known = await ask(cluster, 0, MetadataRequest(topics=[]))
        assert sorted(broker.node_id for broker in known.brokers) == [0, 1]
        for node_id in (0, 1):
            rows = await described(cluster, node_id, "broker.id", "node.id")
            assert {row.value for row in rows.values()} == {str(node_id)}


async def test_advertised_listeners_are_described_as_in_kafka() -> None:
    """An unset property is null, from the defaults, without synonyms, and not read-only."""
    async with Cluster(1) as cluster:
        row = (await described(cluster, 1, "advertised.listeners"))["advertised.listeners"]
        assert (row.value, row.config_source, row.read_only, row.synonyms) == (None, 5, False, [])
    async with Cluster(1, advertised_host="localhost") as cluster:
        row = (await described(cluster, 1, "advertised.listeners"))["advertised.listeners"]
        assert row.value is not None and row.value.startswith("PLAINTEXT://localhost:")
        assert (row.config_source, row.read_only, len(row.synonyms)) == (4, False, 1)


async def described(cluster: Cluster, node_id: int, *names: str) -> dict[str, Any]:
    """Properties of a broker, by name."""
    asked = DescribeConfigsResource(resource_type=4, resource_name=str(node_id), configuration_keys=list(names))
    response = await ask(cluster, node_id, DescribeConfigsRequest(resources=[asked], include_synonyms=True))
    return {row.name: row for row in response.results[0].configs}


async def test_data_directory_and_journal_are_private(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        for _ in range(2):  # the second start writes a journal anew that an older version left open to all
            async with Cluster(1, data_dir=tmp_path / "data"):
                pass
            private = ("data", "data/broker-1", "data/zookeeper.journal")
            assert [stat.S_IMODE((tmp_path / one).stat().st_mode) for one in private] == [0o700, 0o700, 0o600]
            (tmp_path / "data/zookeeper.journal").chmod(0o644)
    finally:
        os.umask(before)


def directories_below(root: Path) -> list[Path]:
    return sorted(one for one in root.rglob("*") if one.is_dir())


@pytest.mark.parametrize("topic", ["../../evil", "../outside", "a/b", "..", "", "x\0y", "x" * 250])
async def test_request_for_illegal_topic_leaves_other_directories_unchanged(tmp_path: Path, topic: str) -> None:
    """LeaderAndIsr, Produce and StopReplica; without an authorizer any client may send them."""
    outside = tmp_path / "outside-0"
    outside.mkdir()
    (outside / "00000000000000000000.log").write_bytes(b"kept")
    async with Cluster(1, data_dir=tmp_path / "data", properties={"log.segment.delete.delay.ms": "0"}) as cluster:
        before = directories_below(tmp_path)
        [node] = cluster.nodes.values()
        connection = await Connection.open("127.0.0.1", node.port, client_id="evil", software_name=NODE_SOFTWARE)
        row = LeaderAndIsrPartitionState(
            partition_index=0, controller_epoch=9, leader=1, leader_epoch=9, isr=[1], partition_epoch=9, replicas=[1]
        )
        answer = await connection.call(
            LeaderAndIsrRequest(
                controller_id=1,
                controller_epoch=9,
                broker_epoch=-1,
                topic_states=[LeaderAndIsrTopicState(topic_name=topic, topic_id=b"t" * 16, partition_states=[row])],
                live_leaders=[],
            )
        )
        assert [one.error_code for topic_row in answer.topics for one in topic_row.partition_errors] == [
            ErrorCode.INVALID_TOPIC_EXCEPTION
        ]
        gone = StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)
        answer = await connection.call(
            StopReplicaRequest(
                controller_id=1,
                controller_epoch=9,
                broker_epoch=-1,
                topic_states=[StopReplicaTopicState(topic_name=topic, partition_states=[gone])],
            )
        )
        assert [one.error_code for one in answer.partition_errors] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        await connection.close()
        assert directories_below(tmp_path) == before
    assert (outside / "00000000000000000000.log").read_bytes() == b"kept"


@pytest.mark.parametrize("restricted", [True, False])
async def test_broker_requests_on_restricted_client_listener_are_refused(restricted: bool) -> None:
    properties = {
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "inter.broker.requests.restricted": str(restricted).lower(),
    }
    listeners = ["EXTERNAL://127.0.0.1:0", "INTERNAL://127.0.0.1:0"]
    named = {"controller_id": 1, "controller_epoch": 0, "broker_epoch": -1}
    async with Cluster(3, listeners=listeners, properties=properties) as cluster:
        host, _, port = cluster.bootstrap_servers_of("EXTERNAL").split(",")[0].rpartition(":")
        connection = await Connection.open(host, int(port), client_id="stranger", software_name=NODE_SOFTWARE)
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        for request in (
            LeaderAndIsrRequest(live_leaders=[], **named),
            StopReplicaRequest(**named),
            UpdateMetadataRequest(live_brokers=[], **named),
        ):
            answer = await connection.call(request)
            assert (answer.error_code == refused) is restricted, type(request).__name__
        marker = WritableTxnMarker(
            producer_id=1,
            producer_epoch=0,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
            coordinator_epoch=0,
        )
        answer = await connection.call(WriteTxnMarkersRequest(markers=[marker]))
        rows = [row.error_code for one in answer.markers for topic in one.topics for row in topic.partitions]
        assert (rows == [refused]) is restricted
        await connection.close()
        async with Producer(cluster.bootstrap_servers_of("EXTERNAL"), acks="all") as producer:
            await producer.send_and_wait("t", b"replicated")
