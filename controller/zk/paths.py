"""Builds every znode path (Kafka 3.9's ZooKeeper layout: kafka.zk.ZkData; Kafka has nothing at /anabranch)."""

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
CONTROL_AGENTS: Final = "/anabranch/control"

ALWAYS_CREATED: Final = (  # by every starting broker; "node exists" is fine
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
    """Return the path of a live broker's ephemeral registration."""
    return f"{BROKER_IDS}/{broker_id}"


def control_agent(node_id: int) -> str:
    """Return the path of the address of a node's control agent, ephemeral."""
    return f"{CONTROL_AGENTS}/{node_id}"


def topic(name: str) -> str:
    """Return the path of a topic's assignment and resize state."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """Return the parent of a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, index: int) -> str:
    """Return the parent of a partition's state."""
    return f"{TOPICS}/{name}/partitions/{index}"


def partition_state(name: str, index: int) -> str:
    """Return the path of a partition's leader, ISR and epochs; its data version is the partition epoch."""
    return state_below(partition(name, index))


def state_below(partition_path: str) -> str:
    """Return the state path of a partition's znode."""
    return f"{partition_path}/state"


def topic_config(name: str) -> str:
    """Return the path of a topic's configuration overrides."""
    return f"{TOPIC_CONFIGS}/{name}"


def config(entity_path: str) -> str:
    """Return the configuration path of an entity by type and name, such as "topics/T" or "brokers/<default>"."""
    return f"/config/{entity_path}"


def consumer_offset(group: str, topic_name: str, index: int) -> str:
    """Return the path of an old consumer's offset."""
    return f"{CONSUMERS}/{group}/offsets/{topic_name}/{index}"


def delete_topic(name: str) -> str:
    """Return the path that requests a topic's deletion."""
    return f"{DELETE_TOPICS}/{name}"


def parent(path: str) -> str:
    """Return the path one level up; "/" is its own parent."""
    return path.rpartition("/")[0] or "/"


def name(path: str) -> str:
    """Return the last component."""
    return path.rpartition("/")[2]
