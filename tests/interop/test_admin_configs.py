"""Configurations changed by another admin client, and seen by its producers without a restart."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.interop.test_moves_and_elections import beside_a_cluster

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"),
]


def alter(admin: AdminClient, kind: ResourceType, name: str, **changes: str) -> None:
    """Set properties of a resource, or (None) unset them."""
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in changes.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(60)


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    entries: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(60)
    return entries


def sends(servers: str, size_bytes: int) -> int:
    """Produce one record; librdkafka's code of what came of it."""
    codes: list[int] = []
    producer = Producer({"bootstrap.servers": servers, "message.max.bytes": 100_000})
    producer.produce("t", b"x" * size_bytes, on_delivery=lambda error, _: codes.append(error.code() if error else 0))
    assert producer.flush(60) == 0
    return codes[0]


async def test_librdkafka_alters_a_topic_config_and_its_producers_are_affected() -> None:
    def work(servers: str) -> None:
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("t", 1, 3)])["t"].result(60)
        assert sends(servers, 5000) == 0
        alter(admin, ResourceType.TOPIC, "t", max_message_bytes="1000")
        entry = described(admin, ResourceType.TOPIC, "t")["max.message.bytes"]
        assert (entry.value, ConfigSource(entry.source)) == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
        assert [one.value for one in entry.synonyms.values()] == ["1000", "1048588"]
        while (code := sends(servers, 5000)) == 0:
            pass  # the leader is told by ZooKeeper, and need not have heard yet
        assert code == KafkaError.MSG_SIZE_TOO_LARGE
        assert sends(servers, 500) == 0
        alter(admin, ResourceType.TOPIC, "t", max_message_bytes="10000")
        while sends(servers, 5000) != 0:
            pass
        with pytest.raises(KafkaException) as refused:
            alter(admin, ResourceType.TOPIC, "t", no_such_thing="1")
        assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG

    await beside_a_cluster(work)


async def test_librdkafka_alters_a_broker_config_and_topics_inherit_it() -> None:
    def work(servers: str) -> None:
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("t", 1, replica_assignment=[[1]])])["t"].result(60)
        for broker in ("1", "2", "3"):
            alter(admin, ResourceType.BROKER, broker, message_max_bytes="1000")
            entry = described(admin, ResourceType.BROKER, broker)["message.max.bytes"]
            assert not entry.is_read_only
        while (code := sends(servers, 5000)) == 0:
            pass
        assert code == KafkaError.MSG_SIZE_TOO_LARGE
        while described(admin, ResourceType.TOPIC, "t")["max.message.bytes"].value != "1000":
            pass
        entry = described(admin, ResourceType.TOPIC, "t")["max.message.bytes"]
        assert ConfigSource(entry.source) is ConfigSource.DYNAMIC_BROKER_CONFIG
        with pytest.raises(KafkaException) as refused:
            alter(admin, ResourceType.BROKER, "1", num_partitions="9")
        assert refused.value.args[0].code() == KafkaError.INVALID_REQUEST

    await beside_a_cluster(work)


async def test_librdkafka_gets_error_of_each_refused_topic() -> None:
    def work(servers: str) -> None:
        admin = AdminClient({"bootstrap.servers": servers})
        wanted = {
            "a.b": NewTopic("a.b", 1, 1),
            "many": NewTopic("many", 1, 9),
            "none": NewTopic("none", 0, 1),
            "odd": NewTopic("odd", 2, replica_assignment=[[1, 2], [3]]),
            "set": NewTopic("set", 1, 1, config={"retention.ms": "soon"}),
            "s p": NewTopic("s p", 1, 1),
        }
        codes = {}
        for name, topic in wanted.items():
            error = admin.create_topics([topic])[name].exception(10)
            codes[name] = error.args[0].code() if error else 0
        assert codes == {
            "a.b": 0,
            "many": KafkaError.INVALID_REPLICATION_FACTOR,
            "none": KafkaError.INVALID_PARTITIONS,
            "odd": KafkaError.INVALID_REPLICA_ASSIGNMENT,
            "set": KafkaError.INVALID_CONFIG,
            "s p": KafkaError.TOPIC_EXCEPTION,
        }
        assert admin.create_topics([NewTopic("a_b", 1, 1)])["a_b"].exception(10).args[0].code() == 17
        wrong = NewPartitions("a.b", 2, replica_assignment=[[1, 2]])
        assert admin.create_partitions([wrong])["a.b"].exception(10).args[0].code() == 39
        admin.create_partitions([NewPartitions("a.b", 2)], validate_only=True)["a.b"].result(60)
        admin.create_partitions([NewPartitions("a.b", 2, replica_assignment=[[3]])])["a.b"].result(60)
        cluster = admin.describe_cluster(include_authorized_operations=True).result(60)
        assert len(cluster.nodes) == 3 and len(cluster.authorized_operations) == 7

    await beside_a_cluster(work)
