"""FindCoordinator: find the broker that coordinates a group or a transactional id (KIP-98, KIP-699).

Versions 0 to 6; v4 has several keys. The coordinator of a key leads the partition of an internal topic that the key
hashes to. A missing topic is created, and the response waits up to `SETTLE_MS` for its leaders. If they take longer, it
is COORDINATOR_NOT_AVAILABLE, and clients retry. So it is for share groups (v6) on a node without them; as Kafka 4.1, it
validates their keys first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from anabranch.broker.administration import topic_creation
from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.controller.zk.session import ZkError
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.hashing import partition_of_group

if TYPE_CHECKING:
    from anabranch.broker.dispatch.services import Services

TOPICS: Final = {0: "__consumer_offsets", 1: "__transaction_state", 2: "__share_group_state"}
"""Key type -> the topic with the state of such keys."""
KINDS: Final = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}
SHARE_GROUP: Final = 2
FIRST_VERSION_WITH_MANY_KEYS: Final = 4
FIRST_VERSION_WITH_SHARE_GROUPS: Final = 6
SETTLE_MS: Final = 500
TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
"""A UUID in Kafka's format."""


@handles(FindCoordinatorRequest, versions="0-6")
async def find_coordinator(ctx: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Find the coordinator of each key; before v4 of the only key, at the top level."""
    keys = request.coordinator_keys if ctx.version >= FIRST_VERSION_WITH_MANY_KEYS else [request.key]
    found, turns = [], YieldBudget()
    for key in keys:
        await turns.spend()
        found.append(await coordinator_of(ctx, key, request.key_type))
    if ctx.version >= FIRST_VERSION_WITH_MANY_KEYS:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message or ErrorCode(only.error_code).name,  # older versions always have a message
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def coordinator_of(ctx: RequestContext, key: str, key_type: int) -> Coordinator:
    """Return the coordinator of one key."""
    services = ctx.services
    try:
        if key_type in KINDS:
            authorize(ctx, Operation.DESCRIBE, KINDS[key_type], key)
        elif key_type == SHARE_GROUP and ctx.version >= FIRST_VERSION_WITH_SHARE_GROUPS:
            authorize(ctx, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
        topic = topic_for(services, key_type, key, ctx.version)
        if key_type == SHARE_GROUP:
            check_share_key(key)
        leader = await leader_for(services, topic, key)
    except KafkaError as error:
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message)
    where = services.metadata.image.brokers[leader].at(ctx.peer.listener)
    if where is None:
        return Coordinator(
            key=key,
            node_id=-1,
            host="",
            port=-1,
            error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
            error_message=f"broker {leader} has no listener {ctx.peer.listener}",
        )
    return Coordinator(
        key=key, node_id=leader, host=where[0], port=where[1], error_code=ErrorCode.NONE, error_message=None
    )


def check_share_key(key: str) -> None:
    """Raise INVALID_REQUEST unless the key is GROUP:TOPIC-ID:PARTITION; group names may have colons."""
    group, _, rest = key.rpartition(":")[0].rpartition(":")
    partition = key.rpartition(":")[2]
    if not group or TOPIC_ID.fullmatch(rest) is None or not partition.isdecimal():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key!r} is not GROUP:TOPIC-ID:PARTITION")


def topic_for(services: Services, key_type: int, key: str, version: int) -> str:
    """Return the topic with the state of such keys. Raises INVALID_REQUEST, COORDINATOR_NOT_AVAILABLE."""
    if key_type not in TOPICS or (key_type == SHARE_GROUP and version < FIRST_VERSION_WITH_SHARE_GROUPS):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown key type {key_type}")
    if key_type == SHARE_GROUP and not services.has_share_groups:
        if services.profile.has_share_coordinator:
            check_share_key(key)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
    return TOPICS[key_type]


async def leader_for(services: Services, topic_name: str, key: str) -> int:
    """Return the live leader of the key's partition. Raises COORDINATOR_NOT_AVAILABLE."""
    if topic_name not in services.metadata.image.topics:
        await create_internal_topic(services, topic_name)
    image = services.metadata.image
    topic = image.topics.get(topic_name)
    if topic is not None:
        partition = topic.partitions.get(partition_of_group(key, len(topic.partitions)))
        if partition is not None and partition.leader in image.brokers:
            return partition.leader
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")


async def create_internal_topic(services: Services, name: str) -> None:
    """Create an internal topic, and wait up to `SETTLE_MS` for its leaders."""
    if not services.metadata.image.brokers:
        # A broker that has just started knows no topics yet either: the topic may exist.
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
    count = 0
    try:
        plan = topic_creation.plan_auto_creation(services.settings, services.metadata.image, name, services.rng)
        count = len(plan.assignment)
        await topic_creation.create_automatically(services, plan)
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            services.log.warning("cannot create %s: %s", name, error)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from None
    except ZkError as error:
        services.log.warning("cannot create %s: %s", name, error)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "ZooKeeper does not answer.") from None
    await topic_creation.wait_until_created(services, {name: max(count, 1)}, SETTLE_MS)
