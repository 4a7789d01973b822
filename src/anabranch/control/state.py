"""The state of a cluster in this process as JSON rows: nodes, topics, groups, transactions.

The state is read between two events of the loop, so one response is consistent. A partition's row comes from its
leader; a replica's log from that replica.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.handlers.list_groups import type_of
from anabranch.broker.replication.partition import Role
from anabranch.controller.zk.memory import MemorySession
from anabranch.dashboard.collectors.newest_topics import newest_topics, present_topics
from anabranch.dashboard.collectors.present_controller import present_controller
from anabranch.dashboard.collectors.present_coordinators import present_coordinators
from anabranch.dashboard.collectors.shared_standings import Standings, shared_standings
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from anabranch.broker.coordinators.groups.group_shards import AnyGroup
    from anabranch.broker.metadata.metadata_cache import PartitionImage, TopicImage
    from anabranch.broker.node.app import Node
    from anabranch.broker.replication.partition import Partition
    from anabranch.cluster.cluster_view import ClusterView


class NodeRow(TypedDict):
    """A node. A node that does not run has no controller, broker epoch, connections or `frozen`."""

    node: Annotated[int, "the node's id"]
    host: str
    port: int
    running: bool
    controller: NotRequired[Annotated[bool, "whether it is the active controller"]]
    broker_epoch: NotRequired[int]
    connections: NotRequired[Annotated[int, "the number of open connections"]]
    frozen: NotRequired[bool]
    clock_offset_ms: NotRequired[Annotated[int, "how far its time of day is ahead"]]
    zookeeper_delay_ms: NotRequired[
        Annotated[int, "by how much what it sends to ZooKeeper and gets from it is late, if it is delayed"]
    ]
    refused: NotRequired[
        Annotated[str, "why its process cannot be killed, stopped, started, frozen or thawed from here"]
    ]


class GenerationRow(TypedDict):
    """A generation of a topic, which a resize began."""

    generation: int
    partitions: Annotated[int, "the number of partitions in this generation"]


class ReplicaRow(TypedDict):
    """The log of a replica. Both offsets are -1 if its node does not run."""

    node: int
    start: Annotated[int, "the log start offset"]
    end: Annotated[int, "the log end offset"]


class PartitionRow(TypedDict):
    """A partition of a topic."""

    partition: int
    leader: Annotated[int, "the leader's node id; -1 without a leader"]
    leader_epoch: int
    isr: Annotated[list[int], "the in-sync replicas"]
    high_watermark: Annotated[int, "-1 without a leader"]
    replicas: list[ReplicaRow]
    drains: Annotated[bool, "whether it takes no more records, and is removed when they are read"]


class TopicRow(TypedDict):
    """A topic with its partitions."""

    topic: str
    generation: Annotated[int, "the number of resizes"]
    history: list[GenerationRow]
    partitions: list[PartitionRow]


class WithheldRow(TypedDict):
    """A partition that no member of a group gets now."""

    topic: str
    partition: int
    reason: str


class OffsetRow(TypedDict):
    """The position of a group in a partition: `committed`, or for share groups `start`."""

    topic: str
    partition: int
    end: Annotated[int, "the high watermark"]
    lag: int
    committed: NotRequired[Annotated[int | None, "the committed offset; null without one"]]
    start: NotRequired[Annotated[int, "the start offset of a share group"]]


class GroupRow(TypedDict):
    """A group with its members, offsets and lag."""

    group: str
    type: Annotated[str, "classic, consumer, share or streams"]
    coordinator: Annotated[int, "the coordinator's node id"]
    state: Annotated[str, "such as Stable or Empty"]
    generation: Annotated[int, "the generation, or the group epoch (KIP-848)"]
    members: Annotated[list[str], "the member ids"]
    withheld: list[WithheldRow]
    offsets: list[OffsetRow]
    lag: Annotated[int, "the sum over all partitions"]


class TransactionRow(TypedDict):
    """A transactional id."""

    transactional_id: str
    coordinator: Annotated[int, "the coordinator's node id"]
    state: Annotated[str, "such as Ongoing or CompleteCommit"]
    producer_id: int
    producer_epoch: int


class ClusterStateRow(TypedDict):
    """Nodes, topics, groups and transactions at one moment."""

    nodes: list[NodeRow]
    topics: list[TopicRow]
    groups: list[GroupRow]
    transactions: list[TransactionRow]


def nodes(cluster: ClusterView) -> list[NodeRow]:
    """Every node, running or not."""
    return [node_row(cluster, node_id) for node_id in cluster.node_ids]


def node_row(cluster: ClusterView, node_id: int) -> NodeRow:
    """One node. KeyError if no node has this id."""
    host, port = cluster.address(node_id)
    node = cluster.nodes.get(node_id)
    row: NodeRow = {"node": node_id, "host": host, "port": port, "running": node is not None}
    if node is not None:
        row |= {
            "controller": node.controller is not None and node.controller is present_controller(cluster),
            "broker_epoch": node.services.fence.broker_epoch,
            "connections": node.server.connection_count,
            "frozen": cluster.is_frozen(node_id),
            "clock_offset_ms": node.clock.offset_ms,
        }
        session = node.services.session
        if isinstance(session, MemorySession) and session.delay_s:
            row["zookeeper_delay_ms"] = round(1000 * session.delay_s)
    return row


def topics(cluster: ClusterView) -> list[TopicRow]:
    """Every topic that a running node knows, by name."""
    known = newest_image(cluster)
    return [topic_row(cluster, known[name]) for name in sorted(known)]


def newest_image(cluster: ClusterView) -> dict[str, TopicImage]:
    """Each topic as the node with the newest metadata shows it."""
    images = (node.services.metadata.image for node in cluster.nodes.values())
    return newest_topics(images, present_topics(cluster))


def topic_row(cluster: ClusterView, topic: TopicImage) -> TopicRow:
    """One topic with its partitions."""
    return {
        "topic": topic.name,
        "generation": topic.generation,
        "history": [{"generation": generation, "partitions": count} for generation, count in topic.history],
        "partitions": [partition_row(cluster, topic.name, one) for _, one in sorted(topic.partitions.items())],
    }


def partition_row(cluster: ClusterView, topic: str, image: PartitionImage) -> PartitionRow:
    """One partition: its metadata, and every running replica."""
    replicas = dict(_replicas(cluster, topic, image.index))
    leader = replicas.get(image.leader)
    leads = leader is not None and leader.role is Role.LEADER
    return {
        "partition": image.index,
        "leader": image.leader,
        "leader_epoch": image.leader_epoch,
        "isr": list(leader.isr) if leader is not None and leads else list(image.isr),
        "high_watermark": leader.high_watermark if leader is not None and leads else -1,
        "replicas": [
            {
                "node": node_id,
                "start": replicas[node_id].log.log_start_offset,
                "end": replicas[node_id].log.log_end_offset,
            }
            if node_id in replicas
            else {"node": node_id, "start": -1, "end": -1}
            for node_id in image.replicas
        ],
        "drains": image.marked_for_deletion,
    }


def _replicas(cluster: ClusterView, topic: str, index: int) -> Iterator[tuple[int, Partition]]:
    for node_id, node in cluster.nodes.items():
        broker = node.services.broker
        found = None if broker is None else broker.replicas.replica(topic, index)
        if found is not None:
            yield node_id, found


def groups(cluster: ClusterView) -> list[GroupRow]:
    """Every group that a running coordinator has loaded, by id."""
    shared, is_present = shared_standings(cluster), present_coordinators(cluster, CONSUMER_OFFSETS_TOPIC)
    images = newest_image(cluster)
    rows = [
        group_row(cluster, node, group, shared, images)
        for node_id, node in cluster.nodes.items()
        if node.services.broker is not None
        for group in node.services.groups.groups()
        if is_present(node_id, group.group_id)
    ]
    return sorted(rows, key=lambda row: str(row["group"]))


def group_row(
    cluster: ClusterView, node: Node, group: AnyGroup, shared: Standings, images: Mapping[str, TopicImage]
) -> GroupRow:
    """One group: its members, committed offsets and lag. `images` are the newest ones of all topics.

    The row lists all partitions of topics with a committed offset; a partition without one lags by its whole log. A
    share group has start offsets instead, and its row lists the partitions that it has begun to read; records finished
    beyond the start offset are no lag.
    """
    committed = node.services.groups.offsets.of(group.group_id).committed
    starts = shared.get(group.group_id, {})
    offsets: list[OffsetRow] = []
    for topic in sorted({topic for topic, _ in (*committed, *starts)}):
        known = topic_row(cluster, images[topic])["partitions"] if topic in images else []
        for one in known:
            place = topic, one["partition"]
            at, state, end = committed.get(place), starts.get(place), one["high_watermark"]
            offset: OffsetRow = {"topic": topic, "partition": one["partition"], "end": end, "lag": 0}
            if state is not None:
                left = end - state.start_offset - max(state.delivery_complete_count, 0)
                offsets.append({**offset, "start": state.start_offset, "lag": max(left, 0)})
            elif not starts:
                start = max((replica["start"] for replica in one["replicas"]), default=0)
                reached = start if at is None else at.offset
                lag = max(end - reached, 0)
                offsets.append({**offset, "committed": None if at is None else at.offset, "lag": lag})
    return {
        "group": group.group_id,
        "type": type_of(group),
        "coordinator": node.settings.node_id,
        "state": group.state.value,
        "generation": group.generation if isinstance(group, ClassicGroup) else group.epoch,
        "members": sorted(group.members.by_id if isinstance(group, ClassicGroup) else group.members),
        "withheld": [
            {"topic": topic, "partition": index, "reason": reason}
            for (topic, index), reason in node.services.groups.withheld(group.group_id).items()
        ],
        "offsets": offsets,
        "lag": sum(one["lag"] for one in offsets),
    }


def transactions(cluster: ClusterView) -> list[TransactionRow]:
    """Every transactional id that a running coordinator has loaded."""
    rows: list[TransactionRow] = []
    is_present = present_coordinators(cluster, TRANSACTION_STATE_TOPIC)
    for node_id, node in cluster.nodes.items():
        broker = node.services.broker
        coordinator = None if broker is None else broker.transactions.built
        for one in () if coordinator is None else coordinator.transactions():
            if is_present(node_id, one.transactional_id):
                rows.append(
                    {
                        "transactional_id": one.transactional_id,
                        "coordinator": node_id,
                        "state": one.state.title,
                        "producer_id": one.producer_id,
                        "producer_epoch": one.producer_epoch,
                    }
                )
    return sorted(rows, key=lambda row: str(row["transactional_id"]))


def cluster_state(cluster: ClusterView) -> ClusterStateRow:
    """The whole state at one moment."""
    return {
        "nodes": nodes(cluster),
        "topics": topics(cluster),
        "groups": groups(cluster),
        "transactions": transactions(cluster),
    }


class LiveRows:
    """The rows of a cluster in this process, for conditions."""

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster

    def topic(self, name: str) -> TopicRow | None:
        """One topic; None if it does not exist."""
        image = newest_image(self._cluster).get(name)
        return None if image is None else topic_row(self._cluster, image)

    def topics(self) -> list[TopicRow]:
        """Every topic."""
        return topics(self._cluster)

    def group(self, name: str) -> GroupRow | None:
        """One group; None if it does not exist."""
        return next((one for one in groups(self._cluster) if one["group"] == name), None)

    def nodes(self) -> list[NodeRow]:
        """Every node."""
        return nodes(self._cluster)
