"""Transactions of producers by single requests, and a scripted transaction coordinator.

The script answers AddPartitionsToTxn over TCP with what the test has told it of transactions, so that a test can
hold an answer back, or let a coordinator be wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from anabranch.broker.dispatch.request_context import RequestContext
from anabranch.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from anabranch.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from anabranch.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from anabranch.protocol.apis.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.internal_topics import TRANSACTION_STATE_TOPIC
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.registry import BY_NAME
from tests.broker.replication.replica_cluster import NOW_MS, Assigned, ReplicaCluster

TRANSACTIONAL_ID = "tx"
PRODUCER = (7, 0)


def transactional_batch(*values: str, producer: tuple[int, int] = PRODUCER, sequence: int = 0) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.append(b"key", value.encode(), timestamp_ms=NOW_MS)
    return builder.build(*producer, sequence, transactional=True)


@dataclass
class ScriptedCoordinator:
    """Coordinates all transactions of a cluster, on one of its brokers."""

    ongoing: dict[str, set[tuple[str, int]]] = field(default_factory=dict)
    """Transactional id -> the partitions of its transaction."""
    asked: list[AddPartitionsToTxnRequest] = field(default_factory=list)
    trouble: ErrorCode = ErrorCode.NONE
    """Said of every partition."""
    refusal: ErrorCode = ErrorCode.NONE
    """Said of whole requests."""
    silent: bool = False
    """Leaves out every answer."""
    hold: asyncio.Event | None = None

    async def answer(self, ctx: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        self.asked.append(request)
        if self.hold is not None:
            await self.hold.wait()
        if self.silent:
            return AddPartitionsToTxnResponse()
        if self.refusal:
            return AddPartitionsToTxnResponse(error_code=self.refusal)
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=one.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=index,
                                    partition_error_code=self.said_of(one.transactional_id, (topic.name, index)),
                                )
                                for index in topic.partitions
                            ],
                        )
                        for topic in one.topics
                    ],
                )
                for one in request.transactions
            ]
        )

    def said_of(self, transactional_id: str, partition: tuple[str, int]) -> ErrorCode:
        if self.trouble:
            return self.trouble
        known = partition in self.ongoing.get(transactional_id, ())
        return ErrorCode.NONE if known else ErrorCode.TRANSACTION_ABORTABLE

    @property
    def questions(self) -> list[tuple[str, int, list[tuple[str, int]]]]:
        """(transactional id, producer epoch, partitions) of all that was asked, in order."""
        return [
            (
                one.transactional_id,
                one.producer_epoch,
                [(topic.name, i) for topic in one.topics for i in topic.partitions],
            )
            for request in self.asked
            for one in request.transactions
        ]


async def coordinate_transactions(
    cluster: ReplicaCluster, broker_id: int = 1, partitions: Iterable[tuple[str, int]] = ()
) -> ScriptedCoordinator:
    """Let a broker coordinate; the transaction of `TRANSACTIONAL_ID` has these partitions."""
    coordinator = ScriptedCoordinator({TRANSACTIONAL_ID: set(partitions)})
    key = BY_NAME["AddPartitionsToTxn"].key
    cluster[broker_id].server.dispatcher._handlers[key] = coordinator.answer
    cluster.assigned[TRANSACTION_STATE_TOPIC, 0] = Assigned((broker_id,), broker_id, 0, (broker_id,))
    await cluster.publish()
    return coordinator


async def produce(
    cluster: ReplicaCluster,
    records: bytes,
    *,
    broker_id: int = 1,
    transactional_id: str | None = TRANSACTIONAL_ID,
    acks: int = -1,
    generation: int = -1,
    version: int | None = None,
) -> PartitionProduceResponse:
    """Send a batch to t-0 as part of a transaction."""
    data = PartitionProduceData(index=0, records=records, generation=generation)
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=60_000,
        topic_data=[TopicProduceData(name="t", partition_data=[data])],
    )
    response = await cluster.call(cluster[broker_id], request, version=version)
    row: PartitionProduceResponse = response.responses[0].partition_responses[0]
    return row


def marker(
    commit: bool,
    *partitions: tuple[str, int],
    producer: tuple[int, int] = PRODUCER,
    coordinator_epoch: int = 1,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=commit,
        topics=[
            WritableTxnMarkerTopic(name=topic, partition_indexes=[index]) for topic, index in partitions or [("t", 0)]
        ],
        coordinator_epoch=coordinator_epoch,
    )


async def end(
    cluster: ReplicaCluster, *markers: WritableTxnMarker, broker_id: int = 1, version: int | None = None
) -> dict[tuple[int, str, int], ErrorCode]:
    """Send markers to a broker; the code per producer and partition."""
    response = await cluster.call(cluster[broker_id], WriteTxnMarkersRequest(markers=list(markers)), version=version)
    return {
        (one.producer_id, topic.name, row.partition_index): ErrorCode(row.error_code)
        for one in response.markers
        for topic in one.topics
        for row in topic.partitions
    }


def txn_commit_request(
    offsets: dict[int, int],
    *,
    group: str = "g",
    topic: str = "t",
    member: tuple[str, int] = ("", -1),
    instance_id: str | None = None,
    producer: tuple[int, int] = PRODUCER,
    metadata: str | None = "m",
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=TRANSACTIONAL_ID,
        group_id=group,
        producer_id=producer[0],
        producer_epoch=producer[1],
        generation_id=member[1],
        member_id=member[0],
        group_instance_id=instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                    for index, offset in offsets.items()
                ],
            )
        ],
    )


def codes_of(response: Any) -> list[ErrorCode]:
    """The codes of all partitions of an answer, in order."""
    return [ErrorCode(row.error_code) for topic in response.topics for row in topic.partitions]
