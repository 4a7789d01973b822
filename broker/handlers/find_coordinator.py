"""FindCoordinator: which broker coordinates a group (KIP-699).

Versions 0 to 6; v4 asks for many keys at once. The coordinator of a group leads the partition of
`__consumer_offsets` that the group's name hashes to. The topic is created when it is missing; the answer waits a
moment for it to have leaders and is COORDINATOR_NOT_AVAILABLE if that takes longer: clients ask again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker import admin
from broker.api import RequestContext, handles
from controller.zk.session import ZkError
from protocol.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from protocol.errors import ErrorCode, KafkaError
from protocol.hashing import partition_of_group

if TYPE_CHECKING:
    from broker.services import Services

OFFSETS_TOPIC: Final = "__consumer_offsets"
GROUP: Final = 0
TRANSACTION: Final = 1
SETTLE_MS: Final = 500


@handles(FindCoordinatorRequest, versions="0-6")
async def find_coordinator(ctx: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Answer each key; one key, at the top level, before version 4."""
    keys = request.coordinator_keys if ctx.version >= 4 else [request.key]
    found = [await coordinator_of(ctx.services, key, request.key_type) for key in keys]
    if ctx.version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def coordinator_of(services: Services, key: str, key_type: int) -> Coordinator:
    """The coordinator of one group."""
    try:
        if key_type != GROUP:
            reason = "transactions are not served yet" if key_type == TRANSACTION else f"unknown key type {key_type}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        leader = await leader_of_group(services, key)
    except KafkaError as error:
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message)
    broker = services.metadata.image.brokers[leader]
    return Coordinator(
        key=key, node_id=leader, host=broker.host, port=broker.port, error_code=ErrorCode.NONE, error_message=None
    )


async def leader_of_group(services: Services, group: str) -> int:
    """The live leader of the group's partition. Raises COORDINATOR_NOT_AVAILABLE."""
    if OFFSETS_TOPIC not in services.metadata.image.topics:
        await create_offsets_topic(services)
    image = services.metadata.image
    topic = image.topics.get(OFFSETS_TOPIC)
    if topic is not None:
        partition = topic.partitions.get(partition_of_group(group, len(topic.partitions)))
        if partition is not None and partition.leader in image.brokers:
            return partition.leader
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")


async def create_offsets_topic(services: Services) -> None:
    """Create the topic and give it a moment to get leaders."""
    try:
        plan = admin.plan_automatic(services.settings, services.metadata.image, OFFSETS_TOPIC, services.rng)
        await admin.create(services, plan)
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            services.log.warning("cannot create %s: %s", OFFSETS_TOPIC, error)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from None
    except ZkError as error:
        services.log.warning("cannot create %s: %s", OFFSETS_TOPIC, error)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "ZooKeeper does not answer.") from None
    await admin.settle(services, {OFFSETS_TOPIC: services.settings.offsets_topic_num_partitions}, SETTLE_MS)
