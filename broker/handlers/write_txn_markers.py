"""WriteTxnMarkers: write commit and abort markers to partitions that this broker leads (KIP-98).

Versions 0 to 2; v2 has the transaction version of each marker (KIP-1228). A marker becomes a control batch in each of
its partitions. Sealed ones accept it, because a transaction that began before the resize must end there (R6, K404). A
partition's code is NONE once all in-sync replicas have the marker. Then the transaction's offsets take effect or are
dropped.

The log refuses a marker of a replaced coordinator or a fenced producer. All stored batches have format 2, so
UNSUPPORTED_FOR_MESSAGE_FORMAT does not occur. A partition that this broker does not host is UNKNOWN_TOPIC_OR_PARTITION,
as in Kafka, after which the coordinator looks up the leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.broker.dispatch.auth_helper import is_authorized, may_come_by_this_listener
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.replication.purgatory import DelayedProduce
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC
from anabranch.protocol.records.control import build_end_transaction
from anabranch.protocol.values import slotted

if TYPE_CHECKING:
    from anabranch.broker.replication.replica_manager import ReplicaManager

ACKS_ALL = -1
EPOCH_BUMP = 2
"""The transaction version whose markers have a newer epoch than their records."""
Outcomes = dict[int, dict[tuple[str, int], ErrorCode]]
"""Producer id -> partition -> error code."""


@slotted
class Written:
    """A marker in one partition, waiting for replication."""

    marker: WritableTxnMarker
    partition: tuple[str, int]
    offset: int
    wait: DelayedProduce


@handles(WriteTxnMarkersRequest, versions="0-2")
async def write_txn_markers(ctx: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Append all markers, then wait until they are replicated."""
    if not may_come_by_this_listener(ctx) or not (
        is_authorized(ctx, Operation.ALTER, ResourceType.CLUSTER)
        or is_authorized(ctx, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    ):
        return error_response(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    replicas = ctx.services.replicas
    outcomes: Outcomes = {}
    written: list[Written] = []
    turns = YieldBudget()
    for marker in request.markers:
        await turns.spend()
        content = control_batch(marker, ctx.services.now_ms())
        for partition in [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]:
            await turns.spend()
            if ctx.peer.connection.is_lost:
                break  # the coordinator may have written it by another connection, and the next transaction begun
            try:
                offset, wait = append(replicas, partition, content, newer=marker.transaction_version >= EPOCH_BUMP)
                written.append(Written(marker, partition, offset, wait))
            except KafkaError as error:
                outcomes.setdefault(marker.producer_id, {})[partition] = error.code
    await replicas.rooms.wait_replicated([one.wait for one in written], ctx.services.settings.request_timeout_ms)
    for one in written:
        code = ErrorCode.REQUEST_TIMED_OUT if one.wait.code is None else one.wait.code
        outcomes.setdefault(one.marker.producer_id, {})[one.partition] = code
        if code is ErrorCode.NONE and one.partition[0] == CONSUMER_OFFSETS_TOPIC:
            ctx.services.groups.transactions.on_marker(
                one.partition[1], one.marker.producer_id, one.offset, commit=one.marker.transaction_result
            )
    return WriteTxnMarkersResponse(markers=[result_of(producer, rows) for producer, rows in outcomes.items()])


def error_response(request: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    """Return the response to a client that may not write markers."""
    return WriteTxnMarkersResponse(
        markers=[
            result_of(
                marker.producer_id,
                {(topic.name, index): code for topic in marker.topics for index in topic.partition_indexes},
            )
            for marker in request.markers
        ]
    )


def control_batch(marker: WritableTxnMarker, now_ms: int) -> bytes:
    """Return the control batch of a marker, equal in each partition."""
    return build_end_transaction(
        commit=marker.transaction_result,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp_ms=now_ms,
    )


def append(
    replicas: ReplicaManager, partition: tuple[str, int], content: bytes, *, newer: bool
) -> tuple[int, DelayedProduce]:
    """Append a marker to one partition, and return its offset; markers have no generation to compare."""
    try:
        found = replicas.partition(*partition)
    except KafkaError as error:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(error)) from None
    if found.retiring:  # it has no open transaction, and a removed log may not grow
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{found!r} is being removed")
    info = replicas.append_local(
        found, content, acks=ACKS_ALL, generation=None, origin="newer-coordinator" if newer else "coordinator"
    )
    return info.last_offset, DelayedProduce(found, info.last_offset + 1)


def result_of(producer_id: int, rows: dict[tuple[str, int], ErrorCode]) -> WritableTxnMarkerResult:
    """Return the partitions of one producer, by topic."""
    topics: dict[str, WritableTxnMarkerTopicResult] = {}
    for (topic, index), code in rows.items():
        if topic not in topics:
            topics[topic] = WritableTxnMarkerTopicResult(name=topic, partitions=[])
        topics[topic].partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
    return WritableTxnMarkerResult(producer_id=producer_id, topics=list(topics.values()))
