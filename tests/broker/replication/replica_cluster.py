"""Brokers that replicate over real TCP in one process, and a scripted controller that tells them what to be.

Everything on a broker is real: listener, dispatcher, handlers, replica manager, logs. The controller is a script,
because these tests need to say exactly which LeaderAndIsr is sent when, and to hold an AlterPartition back.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.config.dynamic_config import DynamicConfig
from anabranch.broker.dispatch.dispatcher import Dispatcher
from anabranch.broker.dispatch.services import Services
from anabranch.broker.membership.cluster_membership import ClusterMembership
from anabranch.broker.membership.controller_fence import ControllerFence
from anabranch.broker.membership.controller_link import ControllerLink
from anabranch.broker.membership.producer_ids import ProducerIds
from anabranch.broker.metadata.metadata_cache import FULL_UPDATE, MetadataCache
from anabranch.broker.metadata.topic_configs import TopicConfigs
from anabranch.broker.network.server import Server
from anabranch.broker.node.broker_assembly import BrokerAssembly
from anabranch.broker.quotas.response_memory import ResponseMemory
from anabranch.broker.replication.partition import Partition
from anabranch.broker.replication.replica_manager import ReplicaManager
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.clients.connection import Connection
from anabranch.controller.zk.memory import MemoryZooKeeper
from anabranch.controller.zk.session import ZkSession
from anabranch.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionDataResult,
    TopicDataResult,
)
from anabranch.protocol.apis.common_structs import GenerationStart
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from anabranch.protocol.apis.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from anabranch.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from anabranch.protocol.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from anabranch.protocol.connection import CLIENT_SOFTWARE, NODE_SOFTWARE
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import iter_batches
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.record import iter_records
from tests.broker.serving import claims

NOW_MS = 1_700_000_000_000
WAIT_S = 60.0


def topic_id_of(topic: str) -> bytes:
    return topic.encode().ljust(16, b"-")


def batch(*values: str, producer: tuple[int, int] = (-1, -1), sequence: int = -1, timestamp_ms: int = NOW_MS) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.append(b"key", value.encode(), timestamp_ms=timestamp_ms)
    return builder.build(*producer, sequence)


def values(records: Any) -> list[str]:
    """The values of all records in these batches."""
    found = []
    for position, header in iter_batches(records):
        for record in iter_records(bytes(records[position : position + header.size_bytes])):
            assert record.value is not None
            found.append(record.value.decode())
    return found


def log_values(partition: Partition) -> list[str]:
    return values(partition.log.read(partition.log.log_start_offset, 1 << 30))


async def until(condition: Callable[[], bool]) -> None:
    """Give the loop turns until something is so; the only way these tests wait."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 -- conditions span several brokers: no one event says it all
            await asyncio.sleep(0.001)


@dataclass
class TestBroker:
    """One broker without a controller."""

    __test__ = False

    id: int
    epoch: int
    files: MemoryFiles
    services: Services
    server: Server

    @property
    def replicas(self) -> ReplicaManager:
        return self.services.replicas

    async def connect(self, software_name: str = CLIENT_SOFTWARE) -> Connection:
        return await Connection.open("127.0.0.1", self.server.port, client_id="test", software_name=software_name)

    async def stop(self, *, clean: bool = True) -> None:
        """An unclean stop leaves the files as they are: no checkpoint, no seal."""
        if not clean:
            self.replicas.housekeeping.checkpoint = _without_power  # type: ignore[method-assign]
        broker = self.services.broker
        assert broker is not None
        for part in (broker.groups, broker.transactions):
            if part.built is not None:
                await part.built.stop()
        await broker.replicas.stop()
        await self.server.stop(drain_s=0)


def _without_power() -> None:
    raise OSError("the power is gone")


@dataclass
class Assigned:
    """A partition in the scripted controller's view."""

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int = 0
    generation: int = -1
    gen_start: tuple[tuple[int, int], ...] = ()
    sealed: bool = False
    log_start_offset: int = -1
    first_leader_epoch: int = -1


@dataclass
class ReplicaCluster:
    """The brokers by id, and what the controller would know."""

    session: ZkSession
    settings: dict[str, Any]
    brokers: dict[int, TestBroker] = field(default_factory=dict)
    assigned: dict[tuple[str, int], Assigned] = field(default_factory=dict)
    proposals: list[AlterPartitionRequest] = field(default_factory=list)
    hold: asyncio.Event | None = None
    """While set to an unset event, AlterPartition is held back."""
    troubles: list[str] = field(default_factory=list)
    """What goes wrong with the next AlterPartition requests: "connection", "unsupported", "whole answer", "one row"."""
    has_generations: set[str] = field(default_factory=set)
    """The topics that are marked: they hold batches with generations."""
    published: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What `publish` says of topics beside their partitions: generation, base, history."""
    racks: dict[int, str] = field(default_factory=dict)
    """What the next `publish` says of each broker."""
    bugs: list[str] = field(default_factory=list)
    """What tasks have ended by; a story that expects some takes them away."""
    steps: list[str] = field(default_factory=list)
    """The steps that the transaction coordinators have taken."""
    _epochs: int = 100

    def clock_ms(self) -> int:
        """The brokers' time of day."""
        return NOW_MS

    def reached(self, step: str) -> None:
        """A transaction coordinator has taken a step."""
        self.steps.append(step)

    async def start(self, broker_id: int, files: MemoryFiles | None = None) -> TestBroker:
        self._epochs += 1
        settings = BrokerSettings(node_id=broker_id, port=0, **self.settings)
        files = files or MemoryFiles()
        rng = random.Random(broker_id)
        dynamic, attachment, metadata = DynamicConfig(settings), ClusterMembership(self.session), MetadataCache()
        topic_configs = TopicConfigs(settings, lambda: self.session)
        producer_ids = ProducerIds(claims(self.session, broker_id))
        fence = ControllerFence()
        fence.broker_epoch = self._epochs
        services = Services(
            dynamic=dynamic,
            metadata=metadata,
            topic_configs=topic_configs,
            controller_link=ControllerLink(lambda: self.session, client_id="test", request_timeout_ms=1000),
            producer_ids=producer_ids,
            membership=attachment,
            clock_ms=self.clock_ms,
            rng=rng,
            fence=fence,
            response_memory=ResponseMemory.of(settings),
            broker=BrokerAssembly(
                dynamic=dynamic,
                attachment=attachment,
                metadata=metadata,
                topic_configs=topic_configs,
                producer_ids=producer_ids,
                fence=fence,
                alter_partition=self.alter_partition,
                rng=rng,
                clock_ms=self.clock_ms,
                steady_ms=self.clock_ms,
                failpoint=self.reached,
                died=lambda bug: self.bugs.append(str(bug)),
            ).assemble(files),
        )
        server = Server(settings, Dispatcher(services))
        await server.start()
        await services.replicas.start()
        broker = self.brokers[broker_id] = TestBroker(broker_id, self._epochs, files, services, server)
        await self.publish()
        return broker

    async def kill(self, broker_id: int, *, clean: bool = False) -> MemoryFiles:
        broker = self.brokers.pop(broker_id)
        await broker.stop(clean=clean)
        return broker.files

    async def restart(self, broker_id: int) -> TestBroker:
        files = await self.kill(broker_id)
        return await self.start(broker_id, files)

    def __getitem__(self, broker_id: int) -> TestBroker:
        return self.brokers[broker_id]

    def partition(self, broker_id: int, topic: str = "t", index: int = 0) -> Partition:
        return self.brokers[broker_id].replicas.partition(topic, index)

    # -- the controller's part ------------------------------------------------------------------------------------

    async def assign(self, topic: str, index: int, new: Assigned, *, only: Iterable[int] | None = None) -> None:
        """Set this assignment, and send it to all brokers, or to `only` some."""
        self.assigned[topic, index] = new
        await self.publish(only)
        await self.tell(topic, index, only)

    async def lead(
        self,
        leader: int,
        *,
        replicas: tuple[int, ...] = (1, 2, 3),
        isr: tuple[int, ...] | None = None,
        topic: str = "t",
        only: Iterable[int] | None = None,
        **more: Any,
    ) -> None:
        """Elect a leader under the next leader epoch."""
        before = self.assigned.get((topic, 0))
        if isr is None:
            isr = replicas if before is None else tuple(one for one in before.isr if one in self.brokers)
        epoch = 0 if before is None else before.leader_epoch + 1
        partition_epoch = 0 if before is None else before.partition_epoch + 1
        await self.assign(topic, 0, Assigned(replicas, leader, epoch, isr, partition_epoch, **more), only=only)

    async def tell(self, topic: str, index: int, only: Iterable[int] | None = None) -> dict[int, ErrorCode]:
        """Send LeaderAndIsr; return each broker's response."""
        request = self.leader_and_isr(topic, index)
        said = {}
        for broker in [self.brokers[one] for one in (only or self.brokers)]:
            response = await self.call(broker, request)
            said[broker.id] = ErrorCode(response.topics[0].partition_errors[0].error_code)
        return said

    def leader_and_isr(self, topic: str, index: int) -> LeaderAndIsrRequest:
        one = self.assigned[topic, index]
        state = LeaderAndIsrPartitionState(
            partition_index=index,
            controller_epoch=1,
            leader=one.leader,
            leader_epoch=one.leader_epoch,
            isr=list(one.isr),
            partition_epoch=one.partition_epoch,
            replicas=list(one.replicas),
            generation=one.generation,
            gen_start=[GenerationStart(generation=g, leader_epoch=e) for g, e in one.gen_start],
            marked_for_deletion=one.sealed,
            log_start_offset=one.log_start_offset,
            first_leader_epoch=one.first_leader_epoch,
        )
        return LeaderAndIsrRequest(
            controller_id=9,
            controller_epoch=1,
            topic_states=[
                LeaderAndIsrTopicState(
                    topic_name=topic,
                    topic_id=topic_id_of(topic),
                    partition_states=[state],
                    has_generations=topic in self.has_generations,
                )
            ],
            live_leaders=[
                LeaderAndIsrLiveLeader(broker_id=b.id, host_name="127.0.0.1", port=b.server.port)
                for b in self.brokers.values()
            ],
        )

    def live_brokers(self) -> list[UpdateMetadataBroker]:
        """The running brokers, as the controller names them."""
        return [
            UpdateMetadataBroker(
                id=b.id,
                endpoints=[
                    UpdateMetadataEndpoint(
                        port=b.server.port, host="127.0.0.1", listener="PLAINTEXT", security_protocol=0
                    )
                ],
                rack=self.racks.get(b.id),
                broker_epoch=b.epoch,
            )
            for b in self.brokers.values()
        ]

    async def publish(self, only: Iterable[int] | None = None) -> None:
        """Send UpdateMetadata."""
        topics: dict[str, UpdateMetadataTopicState] = {}
        for (topic, index), one in self.assigned.items():
            if topic not in topics:
                topics[topic] = UpdateMetadataTopicState(
                    topic_name=topic,
                    topic_id=topic_id_of(topic),
                    partition_states=[],
                    has_generations=topic in self.has_generations,
                    **{"generation": 0, **self.published.get(topic, {})},
                )
            topics[topic].partition_states.append(
                UpdateMetadataPartitionState(
                    partition_index=index,
                    controller_epoch=1,
                    leader=one.leader,
                    leader_epoch=one.leader_epoch,
                    isr=list(one.isr),
                    zk_version=one.partition_epoch,
                    replicas=list(one.replicas),
                )
            )
        request = UpdateMetadataRequest(
            controller_id=9,
            controller_epoch=1,
            type=FULL_UPDATE,
            topic_states=list(topics.values()),
            live_brokers=self.live_brokers(),
        )
        for broker in [self.brokers[one] for one in (only or self.brokers)]:
            await self.call(broker, request)

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Compare and set, with KIP-903's check of every member's broker epoch at the moment of the write."""
        self.proposals.append(request)
        if self.hold is not None:
            await self.hold.wait()
        trouble = self.troubles.pop(0) if self.troubles else ""
        if trouble == "connection":
            raise ConnectionError("the controller has just died")
        if trouble == "unsupported":
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the controller is of another make")
        if trouble == "whole answer":
            return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER, topics=[])
        topics = []
        for topic in request.topics:
            rows = []
            if topic.has_generations:
                self.has_generations.add(topic.topic_id.decode().rstrip("-"))
            for partition in topic.partitions:
                name = next(name for name, _ in self.assigned if topic_id_of(name) == topic.topic_id)
                one = self.assigned[name, partition.partition_index]
                code = ErrorCode.NONE
                if trouble == "one row":
                    code = ErrorCode.NOT_CONTROLLER
                elif partition.leader_epoch < one.leader_epoch:
                    code = ErrorCode.FENCED_LEADER_EPOCH
                elif partition.partition_epoch < one.partition_epoch:
                    code = ErrorCode.INVALID_UPDATE_VERSION
                elif any(
                    member.broker_id not in self.brokers or self.brokers[member.broker_id].epoch != member.broker_epoch
                    for member in partition.new_isr_with_epochs
                ):
                    code = ErrorCode.INELIGIBLE_REPLICA
                else:
                    one.isr = tuple(partition.new_isr)
                    one.partition_epoch += 1
                rows.append(
                    PartitionDataResult(
                        partition_index=partition.partition_index,
                        error_code=code,
                        leader_id=one.leader,
                        leader_epoch=one.leader_epoch,
                        isr=list(one.isr),
                        partition_epoch=one.partition_epoch,
                    )
                )
            topics.append(
                TopicDataResult(topic_id=topic.topic_id, partitions=rows, has_generations=topic.has_generations)
            )
        return AlterPartitionResponse(error_code=0, topics=topics)

    # -- the clients' part ----------------------------------------------------------------------------------------

    async def call(self, broker: TestBroker, request: Any, *, version: int | None = None) -> Any:
        connection = await broker.connect(NODE_SOFTWARE)
        try:
            return await connection.call(request, version=version)
        finally:
            await connection.close()

    async def produce(
        self,
        broker_id: int,
        records: bytes,
        *,
        acks: int = -1,
        generation: int = -1,
        timeout_ms: int = 60_000,
        topic: str = "t",
        version: int | None = None,
    ) -> PartitionProduceResponse:
        response = await self.call(
            self.brokers[broker_id],
            produce_request(records, acks, generation, timeout_ms, topic=topic),
            version=version,
        )
        row: PartitionProduceResponse = response.responses[0].partition_responses[0]
        return row

    async def fetch(self, broker_id: int, offset: int, *, version: int | None = None, **more: Any) -> PartitionData:
        response = await self.call(self.brokers[broker_id], fetch_request(offset, **more), version=version)
        row: PartitionData = response.responses[0].partitions[0]
        return row


def lead_partitions(cluster: ReplicaCluster, indexes: Iterable[int], leader: int, epoch: int, isr: list[int]) -> None:
    """Give broker 1 its role for many partitions, which the missing broker 2 replicates, too."""
    for index in indexes:
        state = LeaderAndIsrPartitionState(
            partition_index=index,
            controller_epoch=1,
            leader=leader,
            leader_epoch=epoch,
            isr=isr,
            partition_epoch=epoch,
            replicas=[1, 2],
        )
        cluster[1].replicas.apply_state("t", topic_id_of("t"), state, has_generations=False)


def produce_request(
    records: bytes, acks: int = -1, generation: int = -1, timeout_ms: int = 60_000, *, topic: str = "t"
) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records, generation=generation)
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def fetch_request(
    offset: int,
    *,
    topic: str = "t",
    epoch: int = -1,
    last_epoch: int = -1,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    isolation_level: int = 0,
) -> FetchRequest:
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=max_bytes,
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic=topic, topic_id=topic_id_of(topic), partitions=[partition])],
    )


@asynccontextmanager
async def replica_cluster(count: int = 3, **settings: Any) -> AsyncIterator[ReplicaCluster]:
    """Fresh brokers, for a minute at most."""
    session = await MemoryZooKeeper().connect()
    cluster = ReplicaCluster(session, settings)
    try:
        for broker_id in range(1, count + 1):
            await cluster.start(broker_id)
        async with asyncio.timeout(60):
            yield cluster
        assert not cluster.bugs
    finally:
        for broker_id in list(cluster.brokers):
            await cluster.kill(broker_id)
        await session.close()
