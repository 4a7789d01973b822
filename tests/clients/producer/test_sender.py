"""One batch per partition and request, five requests per node, and identical bytes in retries.

Method: the real producer against a peer on a real socket that plays a broker with all partitions, good or bad.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch import Producer
from anabranch.clients.producer import sender
from anabranch.protocol.apis.common_structs import ReshardStep
from anabranch.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from anabranch.protocol.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from anabranch.protocol.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import read_header
from anabranch.protocol.wire import ZERO_UUID
from tests.clients.peer import Peer, serve

PARTITIONS = 4


class Broker:
    """Leads everything. `verdicts` are used up by the next partitions that are produced to."""

    def __init__(self) -> None:
        self.peer = Peer()
        self.topic_id = b"i" * 16
        self.produced: list[ProduceRequest] = []
        self.arrived = asyncio.Event()
        self.verdicts: list[ErrorCode | str] = []
        self.producer_id_errors: list[ErrorCode] = []
        self.hold: asyncio.Event | None = None
        self.hold_producer_id: asyncio.Event | None = None

    async def answer(self, request: Any) -> Any:
        if isinstance(request, MetadataRequest):
            return self.metadata(request)
        if isinstance(request, InitProducerIdRequest):
            if self.hold_producer_id is not None:
                await self.hold_producer_id.wait()
            code = self.producer_id_errors.pop(0) if self.producer_id_errors else ErrorCode.NONE
            return InitProducerIdResponse(error_code=code, producer_id=77, producer_epoch=0)
        assert isinstance(request, ProduceRequest)
        self.produced.append(request)
        self.arrived.set()
        if self.hold is not None:
            await self.hold.wait()
        return None if request.acks == 0 else self.verdict(request)

    def verdict(self, request: ProduceRequest) -> ProduceResponse:
        topics = []
        for topic in request.topic_data:
            rows = []
            for data in topic.partition_data:
                verdict = self.verdicts.pop(0) if self.verdicts else ErrorCode.NONE
                if verdict is ErrorCode.NONE and topic.expected_topic_id not in (ZERO_UUID, self.topic_id):
                    verdict = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if verdict == "drop":
                    raise ConnectionResetError
                if verdict != "omit":
                    assert isinstance(verdict, ErrorCode)
                    rows.append(PartitionProduceResponse(index=data.index, error_code=verdict, base_offset=5))
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=rows))
        return ProduceResponse(responses=topics)

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(
                error_code=0, partition_index=n, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
            )
            for n in range(PARTITIONS)
        ]
        topics = [
            MetadataResponseTopic(
                error_code=0,
                name=one.name,
                topic_id=self.topic_id,
                partitions=partitions,
                base=1,
                history=[ReshardStep(generation=3, count=PARTITIONS)],
                ordered_delivery=True,
            )
            for one in request.topics or []
        ]
        node = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.peer.port)
        return MetadataResponse(brokers=[node], controller_id=1, topics=topics)

    async def saw(self, count: int) -> None:
        while len(self.produced) < count:
            self.arrived.clear()
            await self.arrived.wait()


@asynccontextmanager
async def broker_and_producer(**settings: Any) -> AsyncIterator[tuple[Broker, Producer]]:
    broker = Broker()
    async with (
        asyncio.timeout(60),
        serve(broker.answer) as broker.peer,
        Producer(broker.peer.address, linger_ms=0, **settings) as producer,
    ):
        yield broker, producer


def headers_of(broker: Broker) -> list[tuple[int, int, int, int]]:
    """(partition, epoch, first sequence, records) of every batch, in order of arrival."""
    found = []
    for request in broker.produced:
        for topic in request.topic_data:
            for data in topic.partition_data:
                assert data.records is not None
                header = read_header(data.records)
                found.append((data.index, header.producer_epoch, header.base_sequence, header.record_count))
    return found


async def test_producer_id_request_is_repeated_without_other_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """It once slept until its records were too old, because only the first attempt woke it."""
    async with broker_and_producer() as (broker, producer):
        monkeypatch.setattr(producer._network, "retry", lambda attempt: attempt())  # its time is up at once
        broker.producer_id_errors = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
        assert (await producer.send_and_wait("t", b"v", partition=1)).offset == 5
        assert not broker.producer_id_errors


async def test_records_expire_while_no_broker_grants_a_producer_id() -> None:
    async with broker_and_producer(delivery_timeout_ms=300) as (broker, producer):
        broker.hold_producer_id = asyncio.Event()
        receipt = await producer.send("t", b"v", partition=1)
        async with asyncio.timeout(10):
            with pytest.raises(KafkaError, match="no broker has allocated a producer id"):
                await receipt
        broker.hold_producer_id.set()
        assert (await producer.send_and_wait("t", b"v", partition=1)).offset == 5


async def test_requests_carry_generation_and_count() -> None:
    async with broker_and_producer() as (broker, producer):
        metadata = await producer.send_and_wait("t", b"v", partition=2)
        assert (metadata.partition, metadata.offset) == (2, 5)
    (topic,) = broker.produced[0].topic_data
    assert (topic.undeleted_partition_count, topic.partition_data[0].generation) == (PARTITIONS, 3)
    assert topic.expected_topic_id == producer.metadata.topics["t"].topic_id
    assert broker.produced[0].acks == -1


async def test_modulo_partitioner_sends_neither_generation_nor_count() -> None:
    async with broker_and_producer(partitioner="modulo") as (broker, producer):
        await producer.send_and_wait("t", b"v", b"k")
    (topic,) = broker.produced[0].topic_data
    assert (topic.undeleted_partition_count, topic.partition_data[0].generation) == (-1, -1)
    assert topic.expected_topic_id == ZERO_UUID


async def test_request_has_one_batch_per_partition() -> None:
    async with broker_and_producer(batch_bytes=50) as (broker, producer):
        broker.hold = asyncio.Event()
        for _ in range(3):
            for partition in range(PARTITIONS):
                await producer.send("t", b"v" * 40, partition=partition)
        broker.hold.set()
        await producer.flush()
    for request in broker.produced:
        indexes = [data.index for topic in request.topic_data for data in topic.partition_data]
        assert len(indexes) == len(set(indexes))
    for partition in range(PARTITIONS):
        sequences = [header[2] for header in headers_of(broker) if header[0] == partition]
        assert sequences == sorted(sequences)
        assert sum(header[3] for header in headers_of(broker) if header[0] == partition) == 3


async def test_at_most_five_requests_are_in_flight() -> None:
    async with broker_and_producer(batch_bytes=1) as (broker, producer):
        await producer.send_and_wait("t", b"v", partition=0)
        broker.hold = asyncio.Event()
        receipts = []
        for _ in range(9):
            receipts.append(await producer.send("t", b"v", partition=0))
            await asyncio.sleep(0)
        await broker.saw(2)
        connection = producer._network.ready(1)
        assert connection is not None
        assert connection.in_flight == 5
        broker.hold.set()
        await asyncio.gather(*receipts)
    assert [header[2] for header in headers_of(broker)] == list(range(10))


async def test_lost_connection_resends_same_bytes() -> None:
    async with broker_and_producer() as (broker, producer):
        broker.verdicts = ["drop"]
        assert (await producer.send_and_wait("t", b"v", partition=0)).offset == 5
    first, second = (request.topic_data[0].partition_data[0].records for request in broker.produced)
    assert bytes(first or b"") == bytes(second or b"")


async def test_batch_of_deleted_topic_names_it_until_it_is_refused() -> None:
    """The next topic of the name must not store what the deleted one may have, nor by the deleted one's partitions."""
    async with broker_and_producer() as (broker, producer):
        first, second = broker.topic_id, b"j" * 16
        broker.hold, broker.verdicts = asyncio.Event(), ["drop"]
        sent = await producer.send("t", b"v", partition=0)
        await broker.saw(1)
        broker.topic_id = second
        broker.hold.set()
        assert (await sent).offset == 5
    rows = [topic for request in broker.produced for topic in request.topic_data]
    assert [one.expected_topic_id for one in rows] == [first] * (len(rows) - 1) + [second]
    assert len(rows) > 2


@pytest.mark.parametrize("verdict", ["omit", ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS])
async def test_retriable_refusal_is_sent_again(verdict: ErrorCode | str) -> None:
    async with broker_and_producer() as (broker, producer):
        broker.verdicts = [verdict]
        await producer.send_and_wait("t", b"v", partition=0)
    assert len(broker.produced) == 2


async def test_request_timeout_is_sent_again() -> None:
    async with broker_and_producer(request_timeout_ms=100) as (broker, producer):
        broker.hold = asyncio.Event()
        receipt = await producer.send("t", b"v", partition=0)
        await broker.saw(1)
        broker.hold = None
        assert (await receipt).offset == 5
    assert len(broker.produced) == 2


async def test_delayed_record_logs_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings, logged = [], asyncio.Event()

    def hear(text: str, *words: object) -> None:
        warnings.append(text % words)
        logged.set()

    monkeypatch.setattr(sender, "LOOK_S", 0.02)
    monkeypatch.setattr(sender.log, "warning", hear)
    async with broker_and_producer() as (broker, producer):
        broker.hold = asyncio.Event()
        receipt = await producer.send("t", b"v", partition=0)
        await logged.wait()
        broker.hold.set()
        await receipt
    assert warnings == [
        "t-0: records wait for 0 s to be stored: its leader has not responded yet; they time out after 120 s"
    ]


async def test_acks_0_waits_for_no_response() -> None:
    async with broker_and_producer(acks=0) as (broker, producer):
        broker.hold = asyncio.Event()
        assert (await producer.send_and_wait("t", b"v", partition=0)).offset == -1
        broker.hold.set()
        await broker.saw(1)
    assert read_header(broker.produced[0].topic_data[0].partition_data[0].records or b"").producer_id == -1


async def test_producer_id_request_is_repeated_until_granted() -> None:
    async with broker_and_producer() as (broker, producer):
        broker.producer_id_errors = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
        await producer.send_and_wait("t", b"v", partition=0)
    assert read_header(broker.produced[0].topic_data[0].partition_data[0].records or b"").producer_id == 77


async def test_refused_producer_id_fails_the_producer(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    broker.producer_id_errors = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    async with serve(broker.answer) as broker.peer, Producer(broker.peer.address) as producer:
        with pytest.raises(Exception, match="CLUSTER_AUTHORIZATION_FAILED"):
            while True:
                await producer.send_and_wait("t", b"v")
        with pytest.raises(Exception, match="CLUSTER_AUTHORIZATION_FAILED"):
            await producer.send("t", b"v")
    assert "the producer is stopping" in caplog.text
