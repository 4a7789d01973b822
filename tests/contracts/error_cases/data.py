"""Refusals of producers, consumers and followers."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from anabranch.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from anabranch.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from anabranch.protocol.apis.describe_log_dirs import DescribeLogDirsRequest
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.crc32c import crc32c
from tests.broker.replication.replica_cluster import until
from tests.contracts.error_codes import World, case

CRC_POSITION, ATTRIBUTES_POSITION = 17, 21


def batch(size: int = 1, timestamp_ms: int = 0, **identity: Any) -> bytes:
    """One record of so many bytes."""
    builder = BatchBuilder()
    builder.append(None, bytes(size), timestamp_ms=timestamp_ms)
    return bytes(builder.build(**identity))


def with_codec(records: bytes, codec: int) -> bytes:
    """The batch with another codec in its attributes, and the checksum that goes with that."""
    changed = bytearray(records)
    struct.pack_into(">h", changed, ATTRIBUTES_POSITION, codec)
    struct.pack_into(">I", changed, CRC_POSITION, crc32c(bytes(changed[ATTRIBUTES_POSITION:])))
    return bytes(changed)


def producing(
    topic: str,
    records: bytes | None = None,
    *,
    acks: int = 1,
    generation: int = -1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    row = PartitionProduceData(index=0, records=batch() if records is None else records, generation=generation)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[row])],
    )


async def produce(world: World, topic: str, records: bytes | None = None, *, version: int = 9, **more: Any) -> Any:
    return await world.call(producing(topic, records, **more), at=world.leader(topic), version=version)


def listing(topic: str, leader_epoch: int = -1) -> ListOffsetsRequest:
    row = ListOffsetsPartition(partition_index=0, current_leader_epoch=leader_epoch, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[row])])


def fetching(world: World, topic: str, session_id: int = 0, session_epoch: int = -1, **row: Any) -> FetchRequest:
    values = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000} | row
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic=topic, topic_id=world.topic_id(topic), partitions=[FetchPartition(**values)])],
    )


async def resized(world: World) -> str:
    """A topic that was grown from 1 to 2: its partition 0 has given keys away."""
    topic = await world.topic()
    grown = CreatePartitionsTopic(name=topic, count=2, assignments=None)
    response = await world.call(CreatePartitionsRequest(topics=[grown], timeout_ms=10_000, validate_only=False))
    assert response.results[0].error_code == ErrorCode.NONE, response
    await world.known(topic, 2)
    await until(lambda: world.epoch(topic) > 0)
    return topic


# --- producing ---------------------------------------------------------------------------------------------------


@case(ErrorCode.INVALID_REQUIRED_ACKS)
async def produce_with_five_acks(world: World) -> Any:
    """Produce with acks=5."""
    return await produce(world, await world.topic(), acks=5)


@case(ErrorCode.NOT_LEADER_OR_FOLLOWER)
async def produce_to_a_broker_that_does_not_lead(world: World) -> Any:
    """Produce to a broker that does not lead the partition."""
    topic = await world.topic()
    return await world.call(producing(topic), at=world.not_leader(topic), version=9)


@case(ErrorCode.CORRUPT_MESSAGE)
async def produce_a_corrupt_batch(world: World) -> Any:
    """Produce of a batch with one changed byte."""
    records = bytearray(batch())
    records[-1] ^= 1
    return await produce(world, await world.topic(), bytes(records))


@case(ErrorCode.INVALID_RECORD)
async def produce_two_batches(world: World) -> Any:
    """Produce v9 of two batches for one partition."""
    return await produce(world, await world.topic(), batch() + batch())


@case(ErrorCode.INVALID_TIMESTAMP)
async def produce_with_a_future_timestamp(world: World) -> Any:
    """Produce of a record whose time lies beyond message.timestamp.after.max.ms."""
    topic = await world.topic(message_timestamp_after_max_ms="1000")
    return await produce(world, topic, batch(timestamp_ms=4_000_000_000_000))


@case(ErrorCode.MESSAGE_TOO_LARGE)
async def produce_a_batch_above_max_message_bytes(world: World) -> Any:
    """Produce of a batch above max.message.bytes."""
    return await produce(world, await world.topic(max_message_bytes="100"), batch(1000))


@case(ErrorCode.RECORD_LIST_TOO_LARGE)
async def produce_a_batch_above_segment_bytes(world: World) -> Any:
    """Produce of a batch above segment.bytes."""
    return await produce(world, await world.topic(segment_bytes="100"), batch(1000))


@case(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
async def produce_zstd_before_v7(world: World) -> Any:
    """Produce v3 of a batch that is compressed with zstd."""
    return await produce(world, await world.topic(), with_codec(batch(), 4), version=3)


@case(ErrorCode.UNKNOWN_SERVER_ERROR)
async def produce_with_an_unknown_codec(world: World) -> Any:
    """Produce of a batch with codec 7, for which Kafka has no better error either."""
    return await produce(world, await world.topic(), with_codec(batch(), 7))


@case(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
async def produce_with_a_sequence_gap(world: World) -> Any:
    """Produce of an idempotent producer that leaves sequence numbers out."""
    topic = await world.topic()
    await produce(world, topic, batch(producer_id=7, producer_epoch=0, base_sequence=0))
    return await produce(world, topic, batch(producer_id=7, producer_epoch=0, base_sequence=9))


@case(ErrorCode.INVALID_PRODUCER_EPOCH)
async def produce_with_an_old_epoch(world: World) -> Any:
    """Produce of an idempotent producer under an epoch that it has given up."""
    topic = await world.topic()
    await produce(world, topic, batch(producer_id=7, producer_epoch=1, base_sequence=0))
    return await produce(world, topic, batch(producer_id=7, producer_epoch=0, base_sequence=0))


@case(ErrorCode.INVALID_PARTITION_METADATA)
async def produce_with_an_old_generation(world: World) -> Any:
    """Produce v9 with a class generation that ended when the topic was resized (KIP-253)."""
    return await produce(world, await resized(world), generation=0)


async def left_alone(world: World, topic: str) -> None:
    """Let a broker die, and the other one lead the topic without it."""
    await world.cluster.crash_broker(world.other)
    await until(lambda: world.leader(topic) == world.controller)
    replicas = world.cluster.nodes[world.controller].services.replicas
    await until(lambda: len(replicas.leader_of(topic, 0).isr) == 1)


@case(ErrorCode.NOT_ENOUGH_REPLICAS, alone=True)
async def produce_below_min_isr(world: World) -> Any:
    """Produce with acks=all when the ISR is smaller than min.insync.replicas."""
    topic = await world.topic(replicas=2, min_insync_replicas="2")
    await left_alone(world, topic)
    return await produce(world, topic, acks=-1)


@case(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, alone=True)
async def produce_while_the_isr_shrinks_below_min_isr(world: World) -> Any:
    """Produce with acks=all, when the ISR shrinks below min.insync.replicas as the high watermark reaches the batch."""
    topic = await world.topic(replicas=2, min_insync_replicas="2")
    leader, follower = world.leader(topic), world.not_leader(topic)
    await world.cluster.nodes[follower].services.replicas.fetchers.close_one(leader)
    replicas = world.cluster.nodes[leader].services.replicas
    partition = replicas.leader_of(topic, 0)
    waiting = asyncio.ensure_future(produce(world, topic, acks=-1))
    await until(lambda: partition.log.log_end_offset == 1)
    partition.high_watermark, partition.isr = 1, (leader,)  # both at once: no request alone can bring that about
    replicas._high_watermark_moved(partition)
    return await waiting


@case(ErrorCode.KAFKA_STORAGE_ERROR)
async def produce_after_a_failed_flush(world: World) -> Any:
    """Produce to a log whose last flush the disk refused."""
    topic = await world.topic()
    log = world.cluster.nodes[world.leader(topic)].services.replicas.leader_of(topic, 0).log
    log.durability.failure = "a flush failed: the disk is gone"
    try:
        return await produce(world, topic)
    finally:
        log.durability.failure = None


# --- consuming ---------------------------------------------------------------------------------------------------


@case(ErrorCode.FENCED_LEADER_EPOCH)
async def list_offsets_with_an_old_leader_epoch(world: World) -> Any:
    """ListOffsets with a leader epoch that is over (here: ended by a resize)."""
    topic = await resized(world)
    return await world.call(listing(topic, 0), at=world.leader(topic))


@case(ErrorCode.UNKNOWN_LEADER_EPOCH)
async def list_offsets_with_a_future_leader_epoch(world: World) -> Any:
    """ListOffsets with a leader epoch that the leader has not heard of."""
    topic = await world.topic()
    return await world.call(listing(topic, 99), at=world.leader(topic))


@case(ErrorCode.OFFSET_NOT_AVAILABLE)
async def list_offsets_of_a_new_leader(world: World) -> Any:
    """ListOffsets v5 of a leader whose high watermark has not reached the start of its epoch."""
    topic = await world.topic()
    partition = world.cluster.nodes[world.leader(topic)].services.replicas.leader_of(topic, 0)
    began, partition.leader_epoch_start_offset = partition.leader_epoch_start_offset, 5
    try:
        return await world.call(listing(topic), at=world.leader(topic))
    finally:
        partition.leader_epoch_start_offset = began


@case(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
async def fetch_in_an_unknown_session(world: World) -> Any:
    """Fetch v13 in a session that the broker does not have."""
    topic = await world.topic()
    return await world.call(fetching(world, topic, 123_456, 1), at=world.leader(topic), version=13)


@case(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
async def fetch_with_a_wrong_session_epoch(world: World) -> Any:
    """Fetch v13 with a session epoch that is not the next one."""
    topic = await world.topic()
    at = world.leader(topic)
    opened = await world.call(fetching(world, topic, 0, 0), at=at, version=13)
    return await world.call(fetching(world, topic, opened.session_id, 7), at=at, version=13)


@case(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
async def fetch_by_name_and_id(world: World) -> Any:
    """Fetch v12, by name, in a session that was opened with v13, by topic id."""
    topic = await world.topic()
    at = world.leader(topic)
    opened = await world.call(fetching(world, topic, 0, 0), at=at, version=13)
    return await world.call(fetching(world, topic, opened.session_id, 1), at=at, version=12)


@case(ErrorCode.REPLICA_NOT_AVAILABLE)
async def move_a_replica_of_another_broker(world: World) -> Any:
    """AlterReplicaLogDirs at a broker that has no replica of the partition."""
    topic = await world.topic()
    at = world.not_leader(topic)
    (directory,) = (await world.call(DescribeLogDirsRequest(topics=None), at=at)).results
    rows = [AlterReplicaLogDir(path=directory.log_dir, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[0])])]
    return await world.call(AlterReplicaLogDirsRequest(dirs=rows), at=at)
