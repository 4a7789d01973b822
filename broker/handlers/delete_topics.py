"""DeleteTopics: mark topics for deletion in ZooKeeper, and wait until they have left this broker's metadata.

Versions 0 to 6; v6 deletes by name or by topic id. Only the controller answers, or any broker while the controller is a
node that clients cannot see. A topic that is not gone in time is REQUEST_TIMED_OUT, but will be deleted. A topic with
logs on dead brokers is gone for clients, and its row has no error, as in Kafka. Its name stays in use until they
return; the row has a message about this (v5 and newer).
"""

from __future__ import annotations

from anabranch.broker.administration import topic_creation
from anabranch.broker.administration.mutation_charge import MutationCharge
from anabranch.broker.dispatch.auth_helper import authorize, is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.metadata.metadata_cache import ClusterImage, TopicImage, is_another
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.controller.topic_admin import delete_topic, is_going
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_name import is_legal
from anabranch.protocol.wire import ZERO_UUID

FIRST_VERSION_THAT_KNOWS_DELETION_DISABLED = 3
FIRST_VERSION_WITH_STRICT_QUOTA = 5


@handles(DeleteTopicsRequest, versions="0-6")
async def delete_topics(ctx: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Mark each topic separately, then wait for all of them."""
    requested = request.topics if ctx.version >= 6 else [by_name(name) for name in request.topic_names]
    spending = MutationCharge(ctx, strict=ctx.version >= FIRST_VERSION_WITH_STRICT_QUOTA)
    results: list[DeletableTopicResult] = []
    quorum = ctx.services.profile.answers_like_a_quorum
    if quorum:
        results, requested = refuse_repeated(ctx, requested)
    marked: list[tuple[DeletableTopicResult, bytes]] = []
    turns = YieldBudget()
    for topic in requested:
        await turns.spend()
        try:
            marked.append(await mark(ctx, topic, spending))
            results.append(marked[-1][0])
        except KafkaError as error:
            name = topic.name
            if name is None and error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                name = visible_name(ctx, topic.topic_id)
            message = error.message if quorum else None
            results.append(
                DeletableTopicResult(name=name, topic_id=topic.topic_id, error_code=error.code, error_message=message)
            )
    metadata = ctx.services.metadata

    def all_gone(image: ClusterImage) -> bool:
        return all(is_gone(image, row.name, known) for row, known in marked)

    await metadata.wait_until(all_gone, request.timeout_ms)
    for row, known in marked:
        if request.timeout_ms <= 0 or not is_gone(metadata.image, row.name, known):
            row.error_code = ErrorCode.REQUEST_TIMED_OUT
    return DeleteTopicsResponse(responses=results, throttle_time_ms=spending.wait_ms)


def by_name(name: str) -> DeleteTopicState:
    """Convert a topic of a request before version 6 to the later structure."""
    return DeleteTopicState(name=name, topic_id=ZERO_UUID)


def is_gone(image: ClusterImage, name: str | None, topic_id: bytes) -> bool:
    """Return whether a marked topic has left the metadata; another one may have its name by now."""
    topic = None if name is None else image.topics.get(name)
    return topic is None or is_another(topic, topic_id)


async def mark(
    ctx: RequestContext, requested: DeleteTopicState, spending: MutationCharge
) -> tuple[DeletableTopicResult, bytes]:
    """Check one topic and mark it, also if it is marked already. Returns its row, and its id if known. Raises
    KafkaError.
    """
    services, image = ctx.services, ctx.services.metadata.image
    await topic_creation.refuse_unless_controller(services)
    if not services.settings.delete_topic_enable:
        disabled = ctx.version >= FIRST_VERSION_THAT_KNOWS_DELETION_DISABLED
        code = ErrorCode.TOPIC_DELETION_DISABLED if disabled else ErrorCode.INVALID_REQUEST
        raise KafkaError(code, "Topic deletion is disabled.")
    if (requested.name is None) == (requested.topic_id == ZERO_UUID):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Topic name and topic id cannot both be present or both be absent.")
    name = requested.name if requested.name is not None else image.names.get(requested.topic_id)
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    authorize(ctx, Operation.DELETE, ResourceType.TOPIC, name)
    # ZooKeeper decides whether it exists: a node that was just elected may have old metadata.
    if name not in image.topics and (not is_legal(name) or await is_going(services.session, name)):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    topic = image.topics.get(name)
    topic_id = requested.topic_id
    if topic is not None and services.profile.answers_like_a_quorum:
        topic_id = topic.topic_id
    spending.spend(len(topic.partitions) if topic is not None else 0)
    await delete_topic(services.session, name, requested.topic_id)
    row = DeletableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None if topic is None else waits_for(topic, image),
    )
    return row, ZERO_UUID if topic is None else topic.topic_id


def refuse_repeated(
    ctx: RequestContext, requested: list[DeleteTopicState]
) -> tuple[list[DeletableTopicResult], list[DeleteTopicState]]:
    """Return one refusal for each topic that is named several times, by name or id, and the other topics."""

    def key_of(topic: DeleteTopicState) -> str | bytes:
        if topic.name is not None:
            return topic.name
        return visible_name(ctx, topic.topic_id) or topic.topic_id

    by_key: dict[str | bytes, list[DeleteTopicState]] = {}
    for topic in requested:
        by_key.setdefault(key_of(topic), []).append(topic)
    refused = [
        DeletableTopicResult(
            name=next((one.name for one in same if one.name is not None), None),
            topic_id=max(one.topic_id for one in same),
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="The topic is named more than once.",
        )
        for same in by_key.values()
        if len(same) > 1
    ]
    return refused, [same[0] for same in by_key.values() if len(same) == 1]


def visible_name(ctx: RequestContext, topic_id: bytes) -> str | None:
    """Return the name of a topic that the client may not delete; None if it may not describe it."""
    name = ctx.services.metadata.image.names.get(topic_id)
    return name if name is not None and is_authorized(ctx, Operation.DESCRIBE, ResourceType.TOPIC, name) else None


def waits_for(topic: TopicImage, image: ClusterImage) -> str | None:
    """Return a message that names the dead brokers for which a deletion waits; None if there are none."""
    holders = {broker for partition in topic.partitions.values() for broker in partition.replicas}
    down = sorted(holders - image.brokers.keys())
    if not down:
        return None
    named = ", ".join(map(str, down))
    return f"the name '{topic.name}' cannot be reused until broker {named}, which holds logs of the topic, is up again"
