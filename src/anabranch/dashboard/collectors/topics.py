"""Collects topics and partitions for the dashboard: leaders, replicas and cuts.

A collection compares every replica, and makes rows only of those that have changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from anabranch.clients import metadata as known
from anabranch.clients.consumer.gate import TopicGate
from anabranch.clients.group_gates import gate_of
from anabranch.dashboard.collectors.newest_topics import newest_topics, present_topics
from anabranch.protocol import linear_hashing
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.lineage import KeyEpoch, Lineage

if TYPE_CHECKING:
    from anabranch.broker.metadata.metadata_cache import ClusterImage, PartitionImage, TopicImage
    from anabranch.broker.replication.partition import Partition
    from anabranch.cluster.cluster_view import ClusterView
    from anabranch.dashboard.state_delta import StateSheet

Place = tuple[str, int]
Mark = tuple[Any, ...]
DRAWN_MAX: Final = 128
"""The maximum number of partitions for which a lineage is drawn."""


@dataclass(slots=True)
class _Ends:
    """The ends of a topic's key epochs, and their inputs."""

    topic: known.Topic
    cuts: list[tuple[KeyEpoch, int]]
    starts: dict[int, int] = field(default_factory=dict)
    """Partition -> the log start offset of its leader."""
    found: dict[KeyEpoch, int] = field(default_factory=dict)


class TopicCollector:
    """Collects the rows of topics, and caches them between collections."""

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        self._images: dict[int, ClusterImage] = {}
        self._topics: dict[str, TopicImage] = {}
        self._marks: dict[Place, dict[int, Mark]] = {}
        self._as_clients: dict[str, tuple[TopicImage, known.Topic]] = {}
        self._ends: dict[str, _Ends] = {}

    def collect(self, sheet: StateSheet) -> None:
        """Put a row for each topic and each partition."""
        images = {node_id: node.services.metadata.image for node_id, node in self._cluster.nodes.items()}
        changed = self._changed_replicas()
        topics = self._topics
        if images.keys() != self._images.keys() or any(self._images[one] is not image for one, image in images.items()):
            self._images = images
            topics = newest_topics(images.values(), present_topics(self._cluster))
            for name, topic in topics.items():
                before = self._topics.get(name)
                if before is not topic:
                    changed.update(dict.fromkeys((name, index) for index in topic.partitions))
            self._topics = topics
            sheet.keep("topic", {f"topic/{name}" for name in topics})
            sheet.keep("partition", {f"partition/{name}/{at}" for name, one in topics.items() for at in one.partitions})
        for name, index in changed:
            image = topics[name].partitions.get(index) if name in topics else None
            if image is not None:
                sheet.put(f"partition/{name}/{index}", self._partition_row(name, image))
        for name in dict.fromkeys(name for name, _ in changed):
            if name in topics:
                sheet.put(f"topic/{name}", self._topic_row(topics[name]))

    def ends(self, topic: known.Topic) -> dict[KeyEpoch, int]:
        """Key epoch -> its end offset according to the leader, for key epochs that end in a cut.

        The offset of a cut does not change while the leaders and their log starts stay the same.
        """
        kept = self._ends.get(topic.name)
        if kept is None or kept.topic is not topic:
            kept = self._ends[topic.name] = _Ends(topic, list(_cuts(gate_of(topic), topic)))
        logs = {
            index: None if leader is None else leader.log
            for index in dict.fromkeys(key_epoch.partition for key_epoch, _ in kept.cuts)
            for leader in [self._leader(topic.name, topic.partitions[index].leader, index)]
        }
        starts = {index: -1 if log is None else log.log_start_offset for index, log in logs.items()}
        if kept.starts != starts or len(kept.found) < len(kept.cuts):
            kept.starts, kept.found = starts, {}
            for key_epoch, cut in kept.cuts:
                log = logs[key_epoch.partition]
                if log is not None:
                    _, end = log.epochs.end_offset_for(cut - 1, log.log_end_offset)
                    if end >= 0:
                        kept.found[key_epoch] = end
        return kept.found

    def resized_topic(self, name: str) -> known.Topic | None:
        """A topic as a client sees it; None if it does not exist, or was never resized."""
        image = self._topics.get(name)
        if image is None or image.generation <= 0 or image.base <= 0 or not image.history:
            return None
        kept = self._as_clients.get(name)
        if kept is None or kept[0] is not image:
            kept = self._as_clients[name] = image, _as_client(image)
        return kept[1]

    def _changed_replicas(self) -> dict[Place, None]:
        """The partitions with a changed replica."""
        changed: dict[Place, None] = {}
        seen: dict[Place, dict[int, Mark]] = {}
        for node_id, node in self._cluster.nodes.items():
            if node.services.broker is None:  # a node that is only a controller candidate
                continue
            for one in node.services.replicas.partitions():
                log = one.log
                mark = (
                    *(one.role, one.leader_epoch, one.partition_epoch, one.high_watermark),
                    *(log.log_start_offset, log.log_end_offset),
                )
                place = one.topic, one.index
                seen.setdefault(place, {})[node_id] = mark
        before = self._marks
        for place, marks in seen.items():
            if before.get(place) != marks:
                changed[place] = None
        changed.update((place, None) for place in before if place not in seen)
        self._marks = seen
        return changed

    def _leader(self, topic: str, leader: int, index: int) -> Partition | None:
        node = self._cluster.nodes.get(leader)
        found = None if node is None else node.services.replicas.replica(topic, index)
        return found if found is not None and found.is_leader else None

    def _partition_row(self, topic: str, image: PartitionImage) -> dict[str, Any]:
        leader = self._leader(topic, image.leader, image.index)
        replicas = []
        for node_id in image.replicas:
            node = self._cluster.nodes.get(node_id)
            found = None if node is None else node.services.replicas.replica(topic, image.index)
            start, end = (-1, -1) if found is None else (found.log.log_start_offset, found.log.log_end_offset)
            replicas.append([node_id, start, end])
        return {
            "leader": image.leader,
            "epoch": image.leader_epoch,
            "isr": list(image.isr if leader is None else leader.isr),
            "hw": -1 if leader is None else leader.high_watermark,
            "replicas": replicas,
            "generation": image.generation if leader is None else leader.generation,
            "drains": image.marked_for_deletion,
        }

    def _topic_row(self, image: TopicImage) -> dict[str, Any]:
        row: dict[str, Any] = {
            "topic": image.name,
            "partitions": len(image.partitions),
            "generation": image.generation,
            "base": image.base,
            "history": [list(one) for one in image.history],
            "ordered": image.ordered_delivery,
            "has_generations": image.has_generations,
            "min_isr": image.min_insync_replicas,
            "cuts": [],
            "starts": [],
            "river": _river(image.base, image.history),
        }
        topic = self.resized_topic(image.name)
        if topic is not None:
            row["cuts"] = [[one.partition, one.generation, end] for one, end in sorted(self.ends(topic).items())]
            row["starts"] = [[one.index, [list(start) for start in one.gen_start]] for one in topic.partitions.values()]
        return row


@lru_cache(maxsize=1024)
def _river(base: int, history: tuple[tuple[int, int], ...]) -> dict[str, Any] | None:
    """The data of a lineage drawing: the partition that each one split off from, and each one's share of keys."""
    widest = max((count for _, count in history), default=0)
    if base <= 0 or not 0 < widest <= DRAWN_MAX:
        return None
    return {
        "parents": [-1, *(linear_hashing.parent(index, base) for index in range(1, widest))],
        "shares": [[round(one, 6) for one in linear_hashing.shares(base, count)] for _, count in history],
    }


def _as_client(image: TopicImage) -> known.Topic:
    partitions = {
        index: known.Partition(
            *(index, one.leader, one.leader_epoch, one.replicas, one.isr, ErrorCode.NONE, one.gen_start),
            one.marked_for_deletion,
        )
        for index, one in image.partitions.items()
    }
    return known.Topic(image.name, image.topic_id, partitions, lineage=Lineage(image.base, image.history))


def _cuts(gate: TopicGate, topic: known.Topic) -> Iterator[tuple[KeyEpoch, int]]:
    for index in topic.partitions:
        for key_epoch in gate.boundaries(index):
            cut = gate.cut(key_epoch)
            if cut is not None:
                yield key_epoch, cut
