"""Validation and placement of new topics, as in Kafka."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.broker.administration import topic_creation
from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.config.config_changes import change_config
from anabranch.broker.config.effective_config import check_topic_properties, topic_config
from anabranch.broker.dispatch.request_context import INTERNAL_TOPICS
from anabranch.broker.metadata.metadata_cache import BrokerImage, ClusterImage, MetadataCache, TopicImage
from anabranch.protocol.apis.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig
from anabranch.protocol.apis.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import SHARE_STATE_TOPIC
from tests.broker.serving import lone_services

IMAGE = ClusterImage(
    alike={"my_topic": ("my.topic",)},
    brokers={broker: BrokerImage(broker, "h", 9000 + broker, None, broker) for broker in (1, 2, 3)},
    topics={"my.topic": TopicImage("my.topic", bytes(16), {})},
    controller_id=2,
)
SETTINGS = BrokerSettings(num_partitions=4, default_replication_factor=2)


def creatable(name: str = "t", partitions: int = -1, replicas: int = -1, **fields: Any) -> CreatableTopic:
    fields = {"assignments": [], "configs": [], **fields}
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **fields)


def rows(*replicas: list[int]) -> list[CreatableReplicaAssignment]:
    return [CreatableReplicaAssignment(partition_index=i, broker_ids=ids) for i, ids in enumerate(replicas)]


def plan(topic: CreatableTopic) -> topic_creation.TopicPlan:
    return topic_creation.plan_topic(SETTINGS, IMAGE, topic, random.Random(1))


def config(name: str, value: str | None) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=name, value=value)]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (creatable("my.topic"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (creatable("my_topic"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("a" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("späti"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("line\n"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (creatable("my_topic", partitions=0), ErrorCode.INVALID_PARTITIONS),
        (creatable("", configs=config("retention.ms", None)), ErrorCode.INVALID_CONFIG),
        (creatable(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (creatable(partitions=10001), ErrorCode.POLICY_VIOLATION),
        (creatable(replicas=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creatable(replicas=4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creatable(partitions=1, assignments=rows([1])), ErrorCode.INVALID_REQUEST),
        (creatable(assignments=rows([1, 1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (creatable(assignments=rows([1], [1, 2])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (creatable(assignments=rows([])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (creatable(assignments=rows([1], [2])[1:]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (creatable(configs=config("retention.ms", None)), ErrorCode.INVALID_CONFIG),
        (creatable(configs=config("retention.ms", "soon")), ErrorCode.INVALID_CONFIG),
        (creatable(configs=config("no.such.thing", "1")), ErrorCode.INVALID_CONFIG),
    ],
)
def test_invalid_topic_is_refused(topic: CreatableTopic, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        plan(topic)
    assert caught.value.code == code


def test_missing_counts_default_to_the_brokers() -> None:
    made = plan(creatable())
    assert (len(made.assignment), made.replication_factor) == (4, 2)
    made = plan(creatable(partitions=3))
    assert (len(made.assignment), made.replication_factor) == (3, 2)


def test_manual_assignment_may_name_brokers_that_are_not_alive() -> None:
    """As in Kafka: a topic can be created before its brokers start."""
    assert plan(creatable(assignments=rows([3, 9], [1, 2]))).assignment == {0: [3, 9], 1: [1, 2]}


def test_manual_assignment_is_kept() -> None:
    assert plan(creatable(assignments=rows([3, 1], [1, 2]))).assignment == {0: [3, 1], 1: [1, 2]}


def test_topic_ids_are_random_uuids() -> None:
    ids = {topic_creation.fresh_uuid(random.Random(seed)) for seed in range(50)}
    assert len(ids) == 50
    assert all(one[6] >> 4 == 4 and one[8] >> 6 == 2 for one in ids)


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_configuration_of_internal_topics_is_valid(name: str) -> None:
    """Brokers ignore an invalid property that was not refused."""
    made = topic_creation.plan_auto_creation(SETTINGS, IMAGE, name, random.Random(1))
    check_topic_properties(SETTINGS.kafka_version, made.configs)
    config = topic_config(SETTINGS, made.configs)
    if name == SHARE_STATE_TOPIC:
        assert (config.cleanup_policy, config.retention_ms) == ("delete", -1), "the share coordinator deletes records"


def test_offsets_topic_is_compacted_and_sized_by_its_own_settings() -> None:
    settings = BrokerSettings(offsets_topic_num_partitions=8, offsets_topic_replication_factor=3)
    made = topic_creation.plan_auto_creation(settings, IMAGE, "__consumer_offsets", random.Random(1))
    assert (len(made.assignment), made.replication_factor) == (8, 3)
    assert made.configs["cleanup.policy"] == "compact"


def test_transaction_state_topic_has_the_configs_of_its_settings() -> None:
    settings = BrokerSettings(transaction_state_log_num_partitions=5, transaction_state_log_min_isr=2)
    made = topic_creation.plan_auto_creation(settings, IMAGE, "__transaction_state", random.Random(1))
    assert (len(made.assignment), made.replication_factor) == (5, 3)
    assert made.configs == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


@pytest.mark.parametrize(
    ("alive", "alive_before", "limited", "expected"),
    [
        (2, 3, True, (2, 2)),
        (1, 3, True, (1, 1)),
        (3, 3, True, (3, 2)),
        (2, 2, True, None),
        (2, 3, False, None),
    ],
)
def test_replication_factor_of_internal_topics_may_be_limited_to_live_brokers(
    alive: int, alive_before: int, limited: bool, expected: tuple[int, int] | None
) -> None:
    image = dataclasses.replace(
        IMAGE, brokers={key: IMAGE.brokers[key] for key in range(1, alive + 1)}, brokers_max=alive_before
    )
    settings = BrokerSettings(internal_topics_limited_to_live_brokers=limited, transaction_state_log_min_isr=2)
    for name in ("__transaction_state", "__share_group_state", "__consumer_offsets"):
        if expected is None:
            with pytest.raises(KafkaError, match="larger than available brokers"):
                topic_creation.plan_auto_creation(settings, image, name, random.Random(1))
            continue
        made = topic_creation.plan_auto_creation(settings, image, name, random.Random(1))
        min_isr = int(made.configs.get("min.insync.replicas", expected[1]))
        assert (made.replication_factor, min_isr) == expected


@pytest.mark.parametrize(
    ("controller", "brokers", "shown"), [(2, (1, 2), 2), (100, (3, 2), 2), (-1, (1,), 1), (1, (), -1)]
)
async def test_metadata_names_as_controller_a_broker_that_can_reach_it(
    controller: int, brokers: tuple[int, ...], shown: int
) -> None:
    services = await lone_services()
    services.metadata.image = ClusterImage(
        brokers={one: BrokerImage(one, "h", 1, None, 1) for one in brokers}, controller_id=controller
    )
    assert topic_creation.controller_to_show(services) == shown


async def test_kafka_4_profile_names_any_live_broker_as_controller() -> None:
    services = await lone_services(BrokerSettings(kafka_version="4.1"))
    assert topic_creation.controller_to_show(services) == -1
    services.metadata.image = ClusterImage(
        brokers={one: BrokerImage(one, "h", 1, None, 1) for one in (1, 2, 3)}, controller_id=2
    )
    assert {topic_creation.controller_to_show(services) for _ in range(100)} == {1, 2, 3}


async def test_waiting_for_many_topics_checks_each_created_topic_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a request for thousands of topics with one update each is linear."""
    looked: list[str] = []
    has_leaders = topic_creation.has_leaders

    def noted(image: ClusterImage, name: str, count: int) -> bool:
        looked.append(name)
        return has_leaders(image, name, count)

    monkeypatch.setattr(topic_creation, "has_leaders", noted)
    metadata = MetadataCache()
    names = [f"topic-{number}" for number in range(100)]
    waiting = asyncio.ensure_future(
        topic_creation.wait_until_created(SimpleNamespace(metadata=metadata), dict.fromkeys(names, 1), 60_000)  # type: ignore[arg-type]
    )
    for name in names:
        await asyncio.sleep(0)
        assert not waiting.done()
        metadata.apply(update_of(name))
    assert await waiting
    assert len(looked) <= 2 * len(names) + 1


def update_of(name: str) -> UpdateMetadataRequest:
    """A topic with one partition that is led."""
    row = UpdateMetadataPartitionState(
        partition_index=0, controller_epoch=1, leader=1, leader_epoch=0, isr=[1], zk_version=0, replicas=[1]
    )
    topic = UpdateMetadataTopicState(topic_name=name, partition_states=[row])
    return UpdateMetadataRequest(controller_id=1, controller_epoch=1, topic_states=[topic], live_brokers=[])


async def test_refused_creation_does_not_forget_the_config_of_the_existing_topic() -> None:
    """A broker may host a topic before its metadata show it."""
    services = await lone_services(SETTINGS)
    made = topic_creation.plan_topic(SETTINGS, IMAGE, creatable(configs=config("retention.ms", "5")), random.Random(1))
    await topic_creation.create(services, made)
    assert (await services.topic_configs.load("t")).retention_ms == 5
    with pytest.raises(KafkaError, match="already exists"):
        await topic_creation.create(services, made)
    assert services.topic_configs.get("t").retention_ms == 5
    await change_config(services.session, "topics/t", lambda _: {"retention.ms": "6"})
    await services.topic_configs.reload_topic("t")
    assert services.topic_configs.get("t").retention_ms == 6
