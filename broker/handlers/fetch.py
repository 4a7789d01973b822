"""Fetch: read batches, for consumers up to the high watermark or last stable offset, for followers to the log's end.

`FetchReader` (`broker.replication`) selects what a request may read. A request that finds fewer than `min_bytes` waits
until one of its partitions changes or `max_wait_ms` expires; no timer polls. A change of a partition's leader epoch
completes it at once, so that the client learns of it (KIP-320).

In a fetch session (KIP-227) requests and responses contain only changes. A consumer may be directed to a replica in its
own rack (KIP-392). Versions 0 to 18; `old_fetch` converts responses for versions before v10.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from anabranch.broker.dispatch.auth_helper import is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.old_fetch import downgrade
from anabranch.broker.handlers.refused_rows import refused_last
from anabranch.broker.replication.fetch_reader import FIRST_VERSION_WITH_TOPIC_IDS, FetchReader
from anabranch.broker.replication.session_fetch_reader import SessionFetchReader
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.wire import constructor_of

FIRST_VERSION_WITH_ZSTD: Final = 10
new_response: Final = constructor_of(FetchResponse)


@handles(FetchRequest, versions="0-18")
async def fetch(ctx: RequestContext, request: FetchRequest) -> FetchResponse:
    """Read now; if there are too few bytes, wait and read again."""
    try:
        reading = reading_of(ctx, request)
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=[])
    authorizer = ctx.services.authorizer
    if authorizer is not None:
        reading.may_read, reading.acl_changes = partial(may_read, ctx, reading.follower), authorizer.changes
    memory = ctx.services.response_memory
    reading.room_bytes = memory.share_bytes
    is_long = reading.is_long
    responses = await read_in_steps(reading, report=True) if is_long else reading.read(report=True)
    if not reading.enough and request.max_wait_ms > 0:
        replicas = ctx.services.replicas
        responses.clear()  # a long wait must not hold records that are read again after it
        if not (is_long and reading.has_changed()):
            await replicas.rooms.wait(
                replicas.fetches, reading.watched, request.max_wait_ms, reading.ready, reading.start_waiting
            )
        if memory.full:
            await memory.wait_for_room(follower=reading.follower >= 0)
        reading.room_bytes = memory.share_bytes
        responses = await read_in_steps(reading, report=False) if is_long else reading.read(report=False)
    try:
        session_id = reading.finish()
    except KafkaError as error:
        return FetchResponse(error_code=error.code, session_id=request.session_id, responses=[])
    if request.session_epoch == 0:
        session_id = open_session(ctx, request, responses, is_follower=reading.follower >= 0)
        if is_long:
            await asyncio.sleep(0)  # before the response is encoded
    if ctx.version < FIRST_VERSION_WITH_ZSTD:
        await downgrade(ctx, request, responses)
    if reading.refuses:
        responses = refused_last(responses)
    endpoints = reading.hints.endpoints(ctx.peer.listener)
    return new_response(session_id=session_id, responses=responses, node_endpoints=endpoints)


async def read_in_steps(reading: FetchReader, *, report: bool) -> list[FetchableTopicResponse]:
    """Read the partitions of a long request; other requests run between the steps."""
    responses: list[FetchableTopicResponse] = []
    for _ in reading.steps(responses, report=report):
        await asyncio.sleep(0)
    return responses


def may_read(ctx: RequestContext, follower: int, topic: str) -> bool:
    """Return whether the client may read a topic; a follower may read all topics or none."""
    if follower >= 0:
        return is_authorized(ctx, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    return is_authorized(ctx, Operation.READ, ResourceType.TOPIC, topic)


def reading_of(ctx: RequestContext, request: FetchRequest) -> FetchReader:
    """Return the reader of a request. Raises KafkaError if the request does not match its session."""
    services = ctx.services
    replicas = services.replicas
    if request.session_epoch > 0:
        by_id = ctx.version >= FIRST_VERSION_WITH_TOPIC_IDS
        session = services.fetch_sessions.admit(request, by_id=by_id, now_ms=replicas.now_ms())
        if session is not None:
            return SessionFetchReader(replicas, services.metadata, request, ctx.version, session)
    elif request.session_id:
        services.fetch_sessions.close(request.session_id)
    return FetchReader(replicas, services.metadata, request, ctx.version)


def open_session(
    ctx: RequestContext, request: FetchRequest, answer: list[FetchableTopicResponse], *, is_follower: bool
) -> int:
    """Create a session for a full request and its response. Returns its id, or 0 if the cache is full."""
    return ctx.services.fetch_sessions.open(
        request,
        answer,
        is_follower=is_follower,
        by_id=ctx.version >= FIRST_VERSION_WITH_TOPIC_IDS,
        now_ms=ctx.services.replicas.now_ms(),
        draw=ctx.services.rng.randint,
    )
