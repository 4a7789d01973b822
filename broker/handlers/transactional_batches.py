"""Checks the transactional batches of a Produce request before any is appended (KIP-98, KIP-890).

A request with such batches has a transactional id, and all of them have the same producer. The first batch of a
transaction in a partition is appended only if the coordinator has the partition in the transaction. The client adds it,
or, from Produce v12 on, this broker. Transient errors of the coordinator become NOT_ENOUGH_REPLICAS: producers retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.broker.replication.transaction_verification import Transaction, VerifiedPartitions
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import (
    FLAGS_POSITION,
    HEADER_BYTES,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    read_header,
)

if TYPE_CHECKING:
    from anabranch.broker.handlers.generations import Fits
    from anabranch.broker.replication.legacy_producers import KeyPlacementCheck
    from anabranch.broker.replication.partition import Partition
    from anabranch.broker.replication.replica_manager import ReplicaManager
    from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest

FIRST_VERSION_THAT_MAY_ABORT: Final = 11
FIRST_VERSION_THAT_ADDS: Final = 12
"""From this version on, brokers add partitions to transactions for the client."""
_PASSING: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def is_transactional(records: Buffer | None) -> bool:
    """Return whether the records begin with a transactional batch; only its header is read."""
    return (
        records is not None
        and len(records) >= HEADER_BYTES
        and bool(records[FLAGS_POSITION] & TRANSACTIONAL)
        and records[MAGIC_POSITION] == MAGIC
    )


def check_no_transaction(request: ProduceRequest) -> None:
    """Raise KafkaError if a request without a transactional id has a transactional batch."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if is_transactional(data.records):
                raise KafkaError(
                    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional records without a transactional id"
                )


async def verify(replicas: ReplicaManager, request: ProduceRequest, version: int, fits: Fits) -> VerifiedPartitions:
    """Verify the partitions in which this request begins a transaction. Raises KafkaError for the whole request."""
    producer: tuple[int, int] | None = None
    partitions: list[tuple[Partition, int]] = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            if not is_transactional(data.records):
                continue
            assert data.records is not None
            header = read_header(data.records)
            if header.producer_id < 0:
                continue
            if producer not in (None, (header.producer_id, header.producer_epoch)):
                raise KafkaError(
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING, "transactional records of more than one producer"
                )
            producer = (header.producer_id, header.producer_epoch)
            partition = begins_in(replicas, topic.name, data, header, fits.get(id(data)))
            if partition is not None:
                partitions.append((partition, header.base_sequence))
    if producer is None or not partitions:
        return VerifiedPartitions()
    assert request.transactional_id is not None
    verified = await replicas.verifier.verify(
        Transaction(
            request.transactional_id,
            *producer,
            abortable=version >= FIRST_VERSION_THAT_MAY_ABORT,
            adds=version >= FIRST_VERSION_THAT_ADDS,
        ),
        partitions,
    )
    for key, code in verified.refused.items():
        if code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= FIRST_VERSION_THAT_ADDS:
            continue  # these clients know the code
        if code in _PASSING:
            verified.refused[key] = ErrorCode.NOT_ENOUGH_REPLICAS
    return verified


def begins_in(
    replicas: ReplicaManager, topic: str, data: PartitionProduceData, header: BatchHeader, fit: KeyPlacementCheck | None
) -> Partition | None:
    """Return the partition in which this batch begins a transaction; None also if the append will refuse it."""
    try:
        partition = replicas.leader_of(topic, data.index)
        producers = partition.log.producers
        if (
            producers.has_open(header.producer_id, header.producer_epoch)
            or producers.find_duplicate(header) is not None
        ):
            return None
        replicas.check_generation(partition, data.generation, fit)
    except KafkaError:
        return None
    return partition
