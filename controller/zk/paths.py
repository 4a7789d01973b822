"""Every znode path, built in one place (Kafka 3.9's ZooKeeper layout: kafka.zk.ZkData)."""

from __future__ import annotations

from typing import Final

CONSUMERS: Final = "/consumers"
CLUSTER_ID: Final = "/cluster/id"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKER_IDS: Final = "/brokers/ids"
BROKER_ID_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = "/config/changes/config_change_"
DELETE_TOPICS: Final = "/admin/delete_topics"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LATEST_PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
FEATURE: Final = "/feature"

ALWAYS_CREATED: Final = (  # by every broker that starts; "node exists" is fine
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_ID_SEQUENCE,
    ISR_CHANGES,
    LATEST_PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    TOPIC_CONFIGS,
    "/config/clients",
    "/config/users",
    BROKER_CONFIGS,
    "/config/ips",
)


def broker(broker_id: int) -> str:
    """Ephemeral registration of a live broker."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """Assignment and resize state of a topic."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """Parent of a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, index: int) -> str:
    """Parent of a partition's state."""
    return f"{TOPICS}/{name}/partitions/{index}"


def partition_state(name: str, index: int) -> str:
    """Leader, ISR and epochs; its data version is the partition epoch."""
    return state_below(partition(name, index))


def state_below(partition_path: str) -> str:
    """The state of a partition whose znode this is."""
    return f"{partition_path}/state"


def topic_config(name: str) -> str:
    """Configuration overrides of a topic."""
    return f"{TOPIC_CONFIGS}/{name}"


def config(entity_path: str) -> str:
    """Configuration of an entity named by its type and name, such as "topics/T" or "brokers/<default>"."""
    return f"/config/{entity_path}"


def consumer_offset(group: str, topic_name: str, index: int) -> str:
    """Offset of an old consumer."""
    return f"{CONSUMERS}/{group}/offsets/{topic_name}/{index}"


def delete_topic(name: str) -> str:
    """Mark of a topic to be deleted."""
    return f"{DELETE_TOPICS}/{name}"


def parent(path: str) -> str:
    """The path one level up; "/" is its own parent."""
    return path.rpartition("/")[0] or "/"


def name(path: str) -> str:
    """The last component."""
    return path.rpartition("/")[2]
