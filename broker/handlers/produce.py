"""Produce: append record batches to partitions that this broker leads, and answer once `acks` is satisfied.

acks=0 has no response: a failed append closes the connection, so that the client refreshes its metadata. acks=1 answers
after the local append, acks=-1 when every in-sync replica has the records.

The batches of a request are appended in its order, each in the order of rule R5. A request with many batches yields
between two of them: its connection's next request still waits, and each append checks the partition as it is then.
Only after the last append may the request wait for replicas. Meanwhile the later requests of its connection are
processed (`settling`), so that followers fetch all their records at once. A batch of another generation is refused with
INVALID_PARTITION_METADATA and the partition's generation (KIP-253). Before the append, a request that begins a
transaction waits for the transaction's coordinator, and one with large or compressed batches for their validation
(`inspector`). Module `generations` has the waits of R16. Nothing more is appended once the connection is lost, unless
acks is 0: the client may have repeated the request, and sent later records, by another connection. Versions 0 to 13;
v13 has topic ids.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.dispatch.auth_helper import authorize, is_authorized
from anabranch.broker.dispatch.request_context import (
    INTERNAL_TOPICS,
    CloseConnection,
    RequestContext,
    handles,
    refuse_if_lost,
)
from anabranch.broker.handlers.generations import needs, prepare
from anabranch.broker.handlers.topic_ids import identify, name_them
from anabranch.broker.handlers.transactional_batches import check_no_transaction, is_transactional, verify
from anabranch.broker.replication.leader_hints import HINTED, LeaderHints
from anabranch.broker.replication.legacy_producers import LegacyRefused
from anabranch.broker.replication.purgatory import DelayedProduce
from anabranch.broker.replication.record_validator import needs_yielding
from anabranch.broker.storage.inspection import RecordsRefused
from anabranch.broker.tasks.yield_budget import ELEMENTS_PER_READING, YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.common_structs import LeaderIdAndEpoch
from anabranch.protocol.apis.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import (
    CODEC_MASK,
    FLAGS_POSITION,
    LEADER_EPOCH_POSITION,
    LENGTH_POSITION,
    MAGIC,
    MAGIC_POSITION,
)
from anabranch.protocol.wire import ZERO_UUID, constructor_of

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from anabranch.broker.handlers.generations import Fits
    from anabranch.broker.replication.partition import Partition
    from anabranch.broker.replication.record_validator import ValidationResults
    from anabranch.broker.replication.transaction_verification import VerifiedPartitions
    from anabranch.protocol.records.batch import Buffer

ADMIN_CLIENT: Final = "__admin_client"
"""The client id that may write to internal topics, as in Kafka."""
NO_LEADER: Final = LeaderIdAndEpoch()
FIRST_VERSION_WITH_BATCHES: Final = 3
FIRST_VERSION_WITH_ZSTD: Final = 7
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
ZSTD: Final = 4
MESSAGE_BYTES_MIN: Final = 14
WITHOUT_LOG_START: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""The errors of an append for which Kafka's response has no log start offset."""

new_response: Final = constructor_of(ProduceResponse)
new_topic_response: Final = constructor_of(TopicProduceResponse)
new_partition_response: Final = constructor_of(PartitionProduceResponse)


class PreparedProduce:
    """The results of the checks of a request's batches before any is appended."""

    __slots__ = ("fits", "found", "verified", "waiting")

    def __init__(self) -> None:
        self.fits: Fits = {}
        self.found: ValidationResults = {}
        self.verified: VerifiedPartitions | None = None
        """None without a transactional id."""
        self.waiting: list[tuple[DelayedProduce, PartitionProduceResponse]] = []
        """The rows of acks=-1 batches that are not replicated yet."""


@handles(ProduceRequest, versions="0-13")
def produce(ctx: RequestContext, request: ProduceRequest) -> Coroutine[Any, Any, ProduceResponse | None]:
    """Append all batches, then wait for replication if `acks` is -1."""
    return (produce_by_name if ctx.version < FIRST_VERSION_WITH_TOPIC_IDS else produce_by_id)(ctx, request)


async def produce_by_id(ctx: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    """Handle requests that use topic ids."""
    request.topic_data, unknown = name_them(ctx.services.metadata.image, request.topic_data)
    unanswered = [unknown_topic(topic) for topic in unknown]
    if unanswered and request.acks == 0:
        close_if_refused(unanswered)
    response = await produce_by_name(ctx, request)
    if response is not None:
        identify(response.responses, request.topic_data)
        response.responses += unanswered
    return response


async def produce_by_name(ctx: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    """Handle requests that use topic names."""
    replicas = ctx.services.replicas
    hints = LeaderHints(ctx.services.metadata)
    prepared = PreparedProduce()
    whole = request
    try:
        if request.transactional_id is None:
            check_no_transaction(request)
        request, responses = split_authorized(ctx, hints, request)
        needed = needs(replicas, request)
        if needed is not None:
            prepared.fits = await prepare(replicas, needed, request.timeout_ms)
        if request.transactional_id is not None:
            prepared.verified = await verify(replicas, request, ctx.version, prepared.fits)
    except KafkaError as error:
        return refuse_all(ctx, whole, hints, error)
    if needs_yielding(request):
        message_sets = ctx.version < FIRST_VERSION_WITH_BATCHES
        prepared.found = await replicas.inspector.validate(request, message_sets=message_sets)
    if request.acks != 0:
        refuse_if_lost(ctx)
    turns: YieldBudget | None = None
    left = ELEMENTS_PER_READING
    for topic in request.topic_data:
        rows = []
        for data in topic.partition_data:
            left -= 1
            if left < 0:
                left = ELEMENTS_PER_READING
                turns = turns or YieldBudget()
                await turns.spend(left)
                if request.acks != 0:
                    refuse_if_lost(ctx)
            rows.append(append(ctx, hints, request.acks, topic, data, prepared))
        if rows:
            responses.append(new_topic_response(name=topic.name, partition_responses=rows))
    if prepared.waiting:
        waits = [wait for wait, _ in prepared.waiting]
        await replicas.rooms.wait_replicated(waits, request.timeout_ms, settling=True)
        note_outcomes(prepared)
    if request.acks == 0:
        close_if_refused(responses)
        return None
    return new_response(responses=responses, node_endpoints=hints.endpoints(ctx.peer.listener))


def split_authorized(
    ctx: RequestContext, hints: LeaderHints, request: ProduceRequest
) -> tuple[ProduceRequest, list[TopicProduceResponse]]:
    """Return the authorized part of a request, and the rows of the rest. Raises KafkaError for the whole request."""
    if ctx.services.authorizer is None:
        return request, []
    if request.transactional_id is not None:
        batches = (data.records for topic in request.topic_data for data in topic.partition_data)
        if any(map(is_transactional, batches)):
            authorize(ctx, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    granted: list[TopicProduceData] = []
    refused: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        if is_authorized(ctx, Operation.WRITE, ResourceType.TOPIC, topic.name):
            granted.append(topic)
            continue
        error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic.name)
        rows = [refuse(ctx, hints, topic.name, data.index, error) for data in topic.partition_data]
        refused.append(TopicProduceResponse(name=topic.name, partition_responses=rows))
    return dataclasses.replace(request, topic_data=granted) if refused else request, refused


def check(ctx: RequestContext, acks: int, topic: str, data: PartitionProduceData) -> None:
    """Raise KafkaError for data that can be refused without the log; the checks have Kafka's order."""
    try:
        if ctx.version >= FIRST_VERSION_WITH_BATCHES:  # older versions carry any format, and the log converts it
            check_format(ctx.version, data.records)
        if acks not in (-1, 0, 1):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks} must be -1, 0 or 1")
        if topic in INTERNAL_TOPICS and ctx.client_id != ADMIN_CLIENT:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} can only be written by its coordinator")
    except KafkaError:
        if ctx.services.metadata.partition(topic, data.index) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{data.index} does not exist") from None
        raise


def check_format(version: int, records: Buffer | None) -> None:
    """Raise KafkaError for records in a format that this version does not support."""
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "no record batch")
    if len(records) > FLAGS_POSITION:
        if records[MAGIC_POSITION] < MAGIC:
            size = int.from_bytes(records[LENGTH_POSITION:LEADER_EPOCH_POSITION], "big", signed=True)
            code = ErrorCode.INVALID_RECORD if size >= MESSAGE_BYTES_MIN else ErrorCode.CORRUPT_MESSAGE
            raise KafkaError(code, f"{size} bytes of magic {records[MAGIC_POSITION]} need Produce v2")
        if version < FIRST_VERSION_WITH_ZSTD and records[FLAGS_POSITION] & CODEC_MASK == ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce v7")


def append(
    ctx: RequestContext,
    hints: LeaderHints,
    acks: int,
    topic: TopicProduceData,
    data: PartitionProduceData,
    prepared: PreparedProduce,
) -> PartitionProduceResponse:
    """Append to one partition, or refuse it; with acks=-1 add the row to `prepared.waiting`."""
    replicas, verified = ctx.services.replicas, prepared.verified
    try:
        check(ctx, acks, topic.name, data)
        if verified is not None:
            verified.check(topic.name, data.index)
    except KafkaError as error:
        return refuse(ctx, hints, topic.name, data.index, error)
    try:
        partition = replicas.leader_of(topic.name, data.index)
        if topic.expected_topic_id is not ZERO_UUID:  # of stock clients it is the default itself
            check_topic_id(partition, topic.expected_topic_id)
        info = replicas.append_local(
            partition,
            data.records or b"",
            acks=acks,
            generation=data.generation,
            verification=None if verified is None else verified.verifications.get(partition),
            found=prepared.found.get(id(data)),
            fit=prepared.fits.get(id(data)),
        )
    except KafkaError as error:
        return refuse_append(ctx, hints, topic.name, data.index, acks, error)
    row = new_partition_response(
        index=data.index,
        error_code=0,
        base_offset=info.first_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
        current_leader=NO_LEADER,
    )
    if acks == -1:
        prepared.waiting.append((DelayedProduce(partition, info.last_offset + 1), row))
    return row


def check_topic_id(partition: Partition, expected: bytes) -> None:
    """Raise KafkaError if the topic was deleted and created again.

    Its generations are the same numbers then, but its keys have other partitions.
    """
    if expected not in (ZERO_UUID, partition.topic_id) and partition.topic_id != ZERO_UUID:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition!r} belongs to another topic of this name")


def note_outcomes(prepared: PreparedProduce) -> None:
    """Set the errors of the rows whose batches were not replicated in time."""
    for wait, row in prepared.waiting:
        if wait.code is not ErrorCode.NONE:
            row.error_code = wait.code or ErrorCode.REQUEST_TIMED_OUT
            row.base_offset = row.log_append_time_ms = row.log_start_offset = -1


def unknown_topic(topic: TopicProduceData) -> TopicProduceResponse:
    """Return the rows of an unknown topic id."""
    return TopicProduceResponse(
        topic_id=topic.topic_id,
        partition_responses=[
            PartitionProduceResponse(
                index=data.index, error_code=ErrorCode.UNKNOWN_TOPIC_ID, base_offset=-1, current_leader=NO_LEADER
            )
            for data in topic.partition_data
        ],
    )


def refuse_all(
    ctx: RequestContext, request: ProduceRequest, hints: LeaderHints, error: KafkaError
) -> ProduceResponse | None:
    """Return the response to a request that is refused as a whole."""
    responses = [
        TopicProduceResponse(
            name=topic.name,
            partition_responses=[refuse(ctx, hints, topic.name, data.index, error) for data in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    if request.acks == 0:
        close_if_refused(responses)
    return ProduceResponse(responses=responses)


def refuse(
    ctx: RequestContext, hints: LeaderHints, topic: str, index: int, error: KafkaError
) -> PartitionProduceResponse:
    """Return the row of a refused partition, with the details that the client needs to recover."""
    row = PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        error_message=error.message or None,
        current_leader=NO_LEADER,
    )
    if isinstance(error, RecordsRefused | LegacyRefused):
        row.record_errors = [
            BatchIndexAndErrorMessage(batch_index=record, batch_index_error_message=reason)
            for record, reason in error.record_errors
        ]
    elif error.code is ErrorCode.INVALID_PARTITION_METADATA:
        ctx.services.replicas.refused_batches[topic] += 1
        refused = ctx.services.replicas.partition(topic, index)
        # Without a generation the producer retries here: the next leader may already have the batch.
        row.generation = refused.generation if refused.has_all_earlier_records else -1
        row.first_generation = refused.first_generation
    elif error.code in HINTED:
        row.current_leader = hints.leader_of(topic, index)
    return row


def refuse_append(
    ctx: RequestContext, hints: LeaderHints, topic: str, index: int, acks: int, error: KafkaError
) -> PartitionProduceResponse:
    """Return the row of a partition whose leader or log refused the batch."""
    replicas = ctx.services.replicas
    if isinstance(error, LegacyRefused):
        replicas.legacy.warn(error, ctx.client_id, str(ctx.peer), acks)
    row = refuse(ctx, hints, topic, index, error)
    if error.code not in WITHOUT_LOG_START:
        row.log_start_offset = replicas.partition(topic, index).log.log_start_offset
    return row


def close_if_refused(responses: list[TopicProduceResponse]) -> None:
    """Close the connection if an append with acks=0 failed; there is no response to report it."""
    for topic in responses:
        for row in topic.partition_responses:
            if row.error_code != ErrorCode.NONE:
                code = ErrorCode(row.error_code).name
                raise CloseConnection(f"Produce with acks=0 to {topic.name}-{row.index}: {code}")
