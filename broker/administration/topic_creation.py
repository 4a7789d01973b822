"""Creates topics: validates requests, places replicas, writes the topic, and forwards requests to the controller.

CreateTopics, Metadata (automatic creation) and FindCoordinator share two steps: `create` writes the topic to ZooKeeper,
and `wait_until_created` waits until this broker's metadata shows leaders. Validation and placement are pure, and follow
Kafka's `ZkAdminManager` and `AdminZkClient`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.config.effective_config import check_topic_properties, topic_config
from anabranch.broker.dispatch.request_context import INTERNAL_TOPICS
from anabranch.broker.metadata.metadata_cache import ClusterImage, can_collide, metric_name
from anabranch.broker.profiles.profile import profile_for
from anabranch.controller.placement import assign_replicas
from anabranch.controller.topic_admin import create_topic
from anabranch.controller.zk.session import ZkError
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import SHARE_STATE_TOPIC
from anabranch.protocol.topic_name import TOPIC_NAME_LENGTH_MAX, is_legal
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.dispatch.services import Services
    from anabranch.controller.controller import Controller
    from anabranch.protocol.apis.create_topics import CreatableTopic

Answer = TypeVar("Answer")

CONTROLLER_PAUSE_S: Final = 0.05
"""The pause between two attempts to reach the controller, in profiles whose clients do not look for it."""
FORWARDING_MARGIN_MS: Final = 5000
"""Added to the timeout of a forwarded request, to wait for the controller's response."""
AUTO_CREATION_MS: Final = 3000
"""How long a request waits for ZooKeeper to create one topic: less than the request timeouts of clients."""
CLUSTER_METADATA: Final = "__cluster_metadata"
NEW_PARTITIONS_MAX: Final = 10000
"""The most partitions of a new topic, as in Kafka's KRaft mode: bounds the memory that one request can use."""
TRANSACTIONS_TOPIC: Final = "__transaction_state"


@value
class TopicPlan:
    """A validated new topic, ready to be written to ZooKeeper."""

    name: str
    topic_id: bytes
    assignment: dict[int, list[int]]
    configs: dict[str, str]

    @property
    def replication_factor(self) -> int:
        """The number of replicas of the first partition."""
        return len(self.assignment[0])


def controller_to_show(services: Services) -> int:
    """Choose the broker that Metadata responses show as controller, to which clients send admin requests.

    It is the active controller if that is a live broker; otherwise the live broker with the lowest id, which forwards
    to it. A KRaft profile shows a random live broker.
    """
    image = services.metadata.image
    if services.profile.any_broker_is_controller and image.brokers:
        return services.rng.choice(sorted(image.brokers))
    if image.controller_id in image.brokers:
        return image.controller_id
    return min(image.brokers, default=-1)


async def refuse_unless_controller(services: Services) -> None:
    """Raise NOT_CONTROLLER when another live broker is the active controller, or when there is none.

    In profiles in which any broker acts as the controller, only the absence of an active one raises.
    """
    if services.controller is not None and services.controller.active:
        return
    active = await services.controller_link.active()
    if active is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "There is no active controller.")
    if active.broker_id == services.settings.node_id:
        # Elected but not ready, or disconnected: forwarding would send the request back here in a loop.
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "The controller is not ready.")
    if active.broker_id in services.metadata.image.brokers and not services.profile.any_broker_is_controller:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, f"The controller is node {active.broker_id}.")


async def forward_to_controller(
    services: Services,
    request: Any,
    ask: Callable[[Controller], Awaitable[Answer]],
    *,
    timeout_ms: int,
    version: int | None = None,
) -> Answer:
    """Call the active controller on this node, or forward the request to a controller that clients cannot see.

    Raises KafkaError: NOT_CONTROLLER when it is another broker or cannot be reached, REQUEST_TIMED_OUT. In profiles in
    which any broker acts as the controller, it waits for an active controller, and forwards the request to any.
    """
    if not services.profile.any_broker_is_controller:
        return await _at_controller(services, request, ask, timeout_ms, version)
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + max(timeout_ms, 0) / 1000
    while True:
        try:
            return await _at_controller(services, request, ask, timeout_ms, version)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
            if loop.time() >= deadline_s:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, error.message) from None
        await asyncio.sleep(CONTROLLER_PAUSE_S)


async def _at_controller(
    services: Services,
    request: Any,
    ask: Callable[[Controller], Awaitable[Answer]],
    timeout_ms: int,
    version: int | None,
) -> Answer:
    if services.controller is not None and services.controller.active:
        return await ask(services.controller)
    await refuse_unless_controller(services)
    try:
        answer: Answer = await services.controller_link.forward(
            request, timeout_ms=max(timeout_ms, 0) + FORWARDING_MARGIN_MS, version=version
        )
    except TimeoutError:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The controller did not answer in time.") from None
    except ConnectionError as error:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, f"The controller cannot be reached: {error}") from None
    return answer


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for an illegal topic name."""
    if not is_legal(name):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic name {name!r} is illegal: it has 1 to {TOPIC_NAME_LENGTH_MAX} ASCII letters, digits, '.', '_' "
            "or '-', and may not be '.' or '..'",
        )
    if name == CLUSTER_METADATA:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Creation of internal topic {name} is prohibited.")


def check_new_topic(image: ClusterImage, name: str) -> None:
    """Raise KafkaError if a new topic's name is illegal, exists, or collides with another in '.' and '_'."""
    check_topic_name(name)
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    alike = image.alike.get(metric_name(name), ()) if can_collide(name) else ()
    if alike:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topics: {', '.join(alike)}"
        )


def plan_topic(settings: BrokerSettings, image: ClusterImage, topic: CreatableTopic, rng: random.Random) -> TopicPlan:
    """Validate one topic of a CreateTopics request in Kafka's order, and place its replicas. Raises KafkaError."""
    if topic.name == CLUSTER_METADATA:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {topic.name} is prohibited.")
    if topic.name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    missing = [config.name for config in topic.configs if config.value is None]
    if missing:
        message = f"Null value not supported for topic configs: {','.join(missing)}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    assignment = assignment_of(settings, image, topic, rng)
    check_new_topic(image, topic.name)
    if topic.assignments:
        check_assignment(assignment)
        if profile_for(settings.kafka_version).answers_like_a_quorum:
            check_assigned(image, topic)
    configs = {config.name: config.value or "" for config in topic.configs}
    check_topic_properties(settings.kafka_version, configs)
    topic_config(settings, configs)
    return TopicPlan(topic.name, fresh_uuid(rng), assignment, configs)


def assignment_of(
    settings: BrokerSettings, image: ClusterImage, topic: CreatableTopic, rng: random.Random
) -> dict[int, list[int]]:
    """The replicas of a new topic: the request's assignment, or placed by its counts; -1 is the broker's default."""
    counts_given = topic.num_partitions != -1 or topic.replication_factor != -1
    if counts_given and topic.assignments:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the same "
            "time.",
        )
    if topic.assignments:
        return {row.partition_index: list(row.broker_ids) for row in topic.assignments}
    partitions, replicas = topic.num_partitions, topic.replication_factor
    partitions = settings.num_partitions if partitions == -1 else partitions
    replicas = settings.default_replication_factor if replicas == -1 else replicas
    if replicas <= 0 and profile_for(settings.kafka_version).answers_like_a_quorum:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if partitions > NEW_PARTITIONS_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"Excessively large number of partitions: {partitions} > {NEW_PARTITIONS_MAX}"
        )
    return place_partitions(image, partitions, replicas, rng)


def plan_auto_creation(settings: BrokerSettings, image: ClusterImage, name: str, rng: random.Random) -> TopicPlan:
    """Plan a topic that a client uses before it exists (automatic creation). Raises KafkaError."""
    check_new_topic(image, name)
    partitions, replicas, configs = settings.num_partitions, settings.default_replication_factor, {}
    if name == TRANSACTIONS_TOPIC:
        partitions = settings.transaction_state_log_num_partitions
        replicas = internal_replicas(settings, image, settings.transaction_state_log_replication_factor)
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(internal_min_isr(settings, replicas, settings.transaction_state_log_min_isr)),
            "segment.bytes": str(settings.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        }
    elif name == SHARE_STATE_TOPIC:
        partitions = settings.share_coordinator_state_topic_num_partitions
        replicas = internal_replicas(settings, image, settings.share_coordinator_state_topic_replication_factor)
        min_isr = internal_min_isr(settings, replicas, settings.share_coordinator_state_topic_min_isr)
        configs = {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(min_isr),
            "retention.ms": "-1",
            "segment.bytes": str(settings.share_coordinator_state_topic_segment_bytes),
        }
    elif name in INTERNAL_TOPICS:
        partitions = settings.offsets_topic_num_partitions
        replicas = internal_replicas(settings, image, settings.offsets_topic_replication_factor)
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.offsets_topic_segment_bytes),
        }
    return TopicPlan(name, fresh_uuid(rng), place_partitions(image, partitions, replicas, rng), configs)


def internal_replicas(settings: BrokerSettings, image: ClusterImage, factor: int) -> int:
    """The replicas of a new internal topic: its factor, or a replica on each live broker of a cluster of tests.

    A cluster that has never had enough brokers is still starting: a topic that it creates now would stay too small.
    """
    limited = settings.internal_topics_limited_to_live_brokers and factor <= image.brokers_max
    return max(min(factor, len(image.brokers)), 1) if limited else factor


def internal_min_isr(settings: BrokerSettings, replicas: int, min_isr: int) -> int:
    """The `min.insync.replicas` of a new internal topic: at most its replicas, where these may be fewer than usual."""
    return min(min_isr, replicas) if settings.internal_topics_limited_to_live_brokers else min_isr


def check_assignment(assignment: Mapping[int, list[int]]) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT for an inconsistent manual assignment. Its brokers need not be alive."""
    problem = ""
    if len({len(replicas) for replicas in assignment.values()}) > 1:
        problem = "All partitions should have the same number of replicas"
    elif any(len(set(replicas)) != len(replicas) or not replicas for replicas in assignment.values()):
        problem = f"Duplicate replica assignment found, or none: {assignment}"
    elif sorted(assignment) != list(range(len(assignment))):
        problem = "partitions should be a consecutive 0-based integer sequence"
    if problem:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def check_assigned(image: ClusterImage, topic: CreatableTopic) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT for a partition that is assigned twice, and for unregistered brokers."""
    if len({row.partition_index for row in topic.assignments}) < len(topic.assignments):
        problem = "Found multiple manual partition assignments for one partition"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    unknown = sorted({one for row in topic.assignments for one in row.broker_ids} - image.brokers.keys())
    if unknown:
        problem = f"The manual partition assignment includes brokers {unknown}, but no such broker is registered"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def place_partitions(image: ClusterImage, partitions: int, replicas: int, rng: random.Random) -> dict[int, list[int]]:
    """Spread new partitions over the live brokers from a random start, as Kafka does."""
    brokers = [(broker.id, broker.rack) for broker in image.brokers.values()]
    start = rng.randrange(max(len(brokers), 1))
    return assign_replicas(brokers, partitions, replicas, start_index=start, shift=rng.randrange(max(len(brokers), 1)))


def fresh_uuid(rng: random.Random) -> bytes:
    """Create a random (version 4) UUID; never one of the two reserved ones, which have no version bits."""
    drawn = bytearray(rng.randbytes(16))
    drawn[6] = drawn[6] & 0x0F | 0x40
    drawn[8] = drawn[8] & 0x3F | 0x80
    return bytes(drawn)


async def create(services: Services, plan: TopicPlan) -> None:
    """Write the topic's znodes, which the controller watches. Raises TOPIC_ALREADY_EXISTS."""
    await create_topic(
        services.session, name=plan.name, topic_id=plan.topic_id, assignment=plan.assignment, configs=plan.configs
    )
    with contextlib.suppress(ZkError):  # the next session reads all of them again
        await services.topic_configs.reload_topic(plan.name)  # known: that of a deleted topic of this name


async def create_automatically(services: Services, plan: TopicPlan) -> None:
    """Create a topic for a request that is about more than this topic.

    Raises TOPIC_ALREADY_EXISTS, and REQUEST_TIMED_OUT after `AUTO_CREATION_MS`: the topic may exist then.
    """
    try:
        async with asyncio.timeout(AUTO_CREATION_MS / 1000):
            await create(services, plan)
    except TimeoutError:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper does not answer.") from None


async def wait_until_created(services: Services, topics: dict[str, int], timeout_ms: float) -> bool:
    """Wait until each topic has its number of partitions, all with leaders; return False after the timeout."""
    missing = dict(topics)

    def is_visible(image: ClusterImage) -> bool:
        """Called at each metadata change; does not check a complete topic again."""
        while missing:
            name, count = next(iter(missing.items()))
            if not has_leaders(image, name, count):
                return False
            del missing[name]
        return True

    return await services.metadata.wait_until(is_visible, timeout_ms)


def has_leaders(image: ClusterImage, name: str, count: int) -> bool:
    """Whether every partition of a topic has a leader."""
    topic = image.topics.get(name)
    if topic is None or len(topic.partitions) < count:
        return False
    return all(partition.leader >= 0 for partition in topic.partitions.values())
