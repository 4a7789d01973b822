"""ShareFetch: acquire records of share partitions, and acknowledge earlier ones (KIP-932).

Versions 1 to 2. Acknowledgements are stored before records are acquired. A request that acquires nothing waits for
records or for the end of acquisition locks, like a Fetch. A response with acknowledgement results or errors is sent at
once. The order of partitions rotates. Only the first response of a session contains partitions without news. Source:
Kafka's `KafkaApis.handleShareFetchRequest`, `SharePartitionManager`, `DelayedShareFetch`.
"""

from __future__ import annotations

import asyncio
from dataclasses import field
from typing import TYPE_CHECKING, Final

from anabranch.broker.coordinators.share_partitions.share_sessions import (
    CLOSE_EPOCH,
    OPEN_EPOCH,
    PartitionId,
    ShareSession,
)
from anabranch.broker.coordinators.share_partitions.share_state import ShareKey
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers import share_requests
from anabranch.broker.replication.leader_hints import HINTED, LeaderHints
from anabranch.protocol.apis.common_structs import LeaderIdAndEpoch
from anabranch.protocol.apis.share_acknowledge import AcknowledgementBatch
from anabranch.protocol.apis.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.values import slotted

if TYPE_CHECKING:
    from anabranch.broker.coordinators.share_partitions.shared_partitions import SharedPartition
    from anabranch.broker.replication.partition import Partition

RECORD_LIMIT: Final = 1
"""The acquire mode that never exceeds the record limit."""
LOAD_S: Final = 0.5
"""How long a request without records waits for partitions that are being loaded, if others are loaded."""
OPENING: Final = "a request that opens a share session must not acknowledge records."


@slotted
class Answer:
    """The rows of a response under construction."""

    ctx: RequestContext
    hints: LeaderHints
    rows: dict[PartitionId, PartitionData] = field(default_factory=dict)

    def row(self, one: PartitionId) -> PartitionData:
        """Return the row of a partition, created if it is missing."""
        row = self.rows.get(one)
        if row is None:
            no_leader = LeaderIdAndEpoch(leader_id=0, leader_epoch=0)
            row = self.rows[one] = PartitionData(
                partition_index=one[1],
                error_code=ErrorCode.NONE,
                acknowledge_error_code=ErrorCode.NONE,
                current_leader=no_leader,
                records=b"",
                acquired_records=[],
            )
        return row

    def refuse(self, one: PartitionId, error: KafkaError, *, acknowledged: bool) -> None:
        """Set the error of a partition, or with `acknowledged` that of its acknowledgements."""
        row = self.row(one)
        if acknowledged:
            row.acknowledge_error_code, row.acknowledge_error_message = error.code, error.message or None
        else:
            row.error_code, row.error_message = error.code, error.message or None
        topic = self.ctx.services.metadata.topic_name(one[0])
        if error.code in HINTED and topic is not None:
            row.current_leader = self.hints.leader_of(topic, one[1])


@handles(ShareFetchRequest, versions="1-2")
async def share_fetch(ctx: RequestContext, request: ShareFetchRequest) -> ShareFetchResponse:
    """Store the acknowledgements, then acquire records; wait if there are none."""
    try:
        group, member = share_requests.check_sender(ctx, request.group_id, request.member_id)
        check_renewal(request)
        session = session_of(ctx, request, group, member)
    except KafkaError as error:
        return ShareFetchResponse(
            error_code=error.code, error_message=error.message or None, responses=[], node_endpoints=[]
        )
    answer = Answer(ctx, LeaderHints(ctx.services.metadata))
    await acknowledge(answer, request, group, member)
    if request.share_session_epoch == CLOSE_EPOCH:
        ctx.services.shares.end(session)
    elif not request.is_renew_ack:
        await acquire(answer, request, session)
        if request.share_session_epoch == OPEN_EPOCH and request.max_records > 0 and request.max_bytes > 0:
            for where in session.partitions:
                answer.row(where)
    return response_of(answer, group)


def check_renewal(request: ShareFetchRequest) -> None:
    """Raise INVALID_REQUEST for a request that both renews locks and fetches records."""
    if request.is_renew_ack and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a request that renews locks must not fetch records.")


def session_of(ctx: RequestContext, request: ShareFetchRequest, group: str, member: str) -> ShareSession:
    """Open or continue the session of a request. Raises KafkaError."""
    shares = ctx.services.shares
    named = [(topic.topic_id, one) for topic in request.topics for one in topic.partitions]
    if request.share_session_epoch == OPEN_EPOCH:
        if any(one.acknowledgement_batches for _, one in named):
            raise KafkaError(ErrorCode.INVALID_REQUEST, OPENING)
        session = shares.sessions.open(
            group, member, (ctx.peer.host, ctx.peer.port), ctx.services.settings.group_share_max_share_sessions
        )
    else:
        session = shares.sessions.admit(group, member, request.share_session_epoch)
    session.update(
        [(topic_id, one.partition_index) for topic_id, one in named],
        [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions],
    )
    return session


async def acknowledge(answer: Answer, request: ShareFetchRequest, group: str, member: str) -> None:
    """Store the acknowledgements of a request; no partition waits for another's share coordinator."""

    async def store(where: PartitionId, batches: list[AcknowledgementBatch]) -> None:
        try:
            acknowledgements = share_requests.acknowledgements_of(batches, renews=request.is_renew_ack)
            await share_requests.store(answer.ctx, group, member, *where, acknowledgements)
        except KafkaError as error:
            answer.refuse(where, error, acknowledged=True)

    given = [
        ((topic.topic_id, one.partition_index), one.acknowledgement_batches)
        for topic in request.topics
        for one in topic.partitions
        if one.acknowledgement_batches
    ]
    for where, _ in given:
        answer.row(where)
    await asyncio.gather(*(store(*one) for one in given))


async def acquire(answer: Answer, request: ShareFetchRequest, session: ShareSession) -> None:
    """Acquire records of the session's partitions; wait if there are none.

    Partitions that are loaded do not wait for others, whose share coordinators may be unavailable.
    """
    ctx = answer.ctx
    readable: dict[PartitionId, SharedPartition] = {}
    loading: dict[PartitionId, asyncio.Future[SharedPartition]] = {}
    for where in session.rotate():
        try:
            topic, key = share_requests.topic_of(ctx, where[0]), ShareKey(session.group, *where)
            one = ctx.services.shares.partitions.look_up(key, topic)
            if one is not None and where not in session.unread:
                readable[where] = one
            else:
                loading[where] = load(ctx, session, where, topic)
        except KafkaError as error:
            answer.refuse(where, error, acknowledged=False)
    acquire_now(answer, request, session, readable)
    if loading and not answer.rows:
        await asyncio.wait(loading.values(), timeout=LOAD_S if readable else None)
        for where, future in loading.items():
            if future.done():
                try:
                    readable[where] = future.result()
                except KafkaError as error:
                    answer.refuse(where, error, acknowledged=False)
        acquire_now(answer, request, session, readable)
    if answer.rows or request.max_wait_ms <= 0 or not readable:
        return
    watched: dict[Partition, SharedPartition] = {one.partition: one for one in readable.values()}

    def ready(changed: Partition) -> bool:
        one = watched[changed]
        return changed.leader_epoch != one.leader_epoch or not changed.is_leader or one.has_acquirable_records

    rooms = ctx.services.replicas.rooms
    await rooms.wait(rooms.fetches, watched, request.max_wait_ms, ready)
    acquire_now(answer, request, session, readable)


def load(ctx: RequestContext, session: ShareSession, where: PartitionId, topic: str) -> asyncio.Future[SharedPartition]:
    """Load a partition for a session; once at a time, although its next requests ask again."""
    known: asyncio.Future[SharedPartition] | None = session.loading.get(where)
    if known is not None:
        return known

    def on_loaded(done: asyncio.Future[SharedPartition]) -> None:
        del session.loading[where]
        if not done.cancelled() and done.exception() is None:
            session.unread.discard(where)

    started = session.loading[where] = ctx.services.shares.partitions.load(ShareKey(session.group, *where), topic)
    started.add_done_callback(on_loaded)
    return started


def acquire_now(
    answer: Answer, request: ShareFetchRequest, session: ShareSession, readable: dict[PartitionId, SharedPartition]
) -> None:
    """Acquire available records up to the request's limits; none if the session ended during the wait."""
    shares = answer.ctx.services.shares
    if not shares.sessions.is_open(session):
        return
    records_left, bytes_left = request.max_records, request.max_bytes
    bytes_left = min(bytes_left, answer.ctx.services.response_memory.share_bytes)
    for where, one in readable.items():
        if records_left <= 0 or bytes_left <= 0:
            return
        try:
            one.partition.check_leader()
            records, acquired = shares.partitions.acquire(
                one,
                session.member,
                max_records=records_left,
                batch_size=request.batch_size,
                max_bytes=bytes_left,
                strict=request.share_acquire_mode == RECORD_LIMIT,
            )
        except KafkaError as error:
            answer.refuse(where, error, acknowledged=False)
            continue
        if not acquired:
            continue
        row = answer.row(where)
        row.records = records
        row.acquired_records = [
            AcquiredRecords(first_offset=got.first, last_offset=got.last, delivery_count=got.delivery_count)
            for got in acquired
        ]
        records_left -= sum(got.last - got.first + 1 for got in acquired)
        bytes_left -= len(records)


def response_of(answer: Answer, group: str) -> ShareFetchResponse:
    """Return the response, with its rows by topic."""
    topics: dict[bytes, ShareFetchableTopicResponse] = {}
    for (topic_id, _), row in answer.rows.items():
        if topic_id not in topics:
            topics[topic_id] = ShareFetchableTopicResponse(topic_id=topic_id, partitions=[])
        topics[topic_id].partitions.append(row)
    return ShareFetchResponse(
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=answer.ctx.services.shares.settings(group).lock_duration_ms,
        responses=list(topics.values()),
        node_endpoints=answer.hints.endpoints(answer.ctx.peer.listener),
    )
