"""A client's cluster metadata: an immutable snapshot, replaced with each Metadata response.

Any broker may answer, and some lag behind. A snapshot therefore never goes back on what decides order (K507):

    a topic's generation never falls while its topic id stays the same: a lagging answer cannot bring back old hashing
    a partition's leader is not replaced by one of a lower leader epoch (KIP-320)

A topic with another id is another topic and starts afresh. A topic without our tags (a plain Kafka cluster, or
`enable.ordered.delivery=false`) has no lineage: its records are hashed as Kafka does and carry no generation (K803).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from anabranch.protocol.apis.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.topic_partition import TopicPartition as TopicPartition
from anabranch.protocol.wire import ZERO_UUID

NO_LEADER: Final = -1
REFUSED_FOR_GOOD: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION})
"""Permanent errors of a topic. With any other error the topic is not usable yet: its brokers may be down, its leaders
not elected, the answering broker just started (`Metadata.handleMetadataResponse`)."""


@dataclass(frozen=True, slots=True)
class Node:
    """A broker and its address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition in the metadata."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error: ErrorCode
    gen_start: tuple[tuple[int, int], ...] = ()
    """(class generation, first leader epoch that serves it), rising (R2)."""
    marked_for_deletion: bool = False
    partition_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. `lineage` is None where Kafka's own rules apply."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, Partition]
    internal: bool = False
    lineage: Lineage | None = None
    initial_partition_count: int = -1
    min_insync_replicas: int = -1
    gated: bool = True
    """Whether consumers wait at a resize until earlier key epochs are read (`enable.ordered.delivery`)."""
    has_generations: bool = False
    """Whether a producer with generations has written to it, so that others may be refused (R16)."""

    @property
    def ordered(self) -> bool:
        """Whether keys are placed by generations, so that they can keep their order across resizes."""
        return self.lineage is not None

    @property
    def generation(self) -> int:
        """The newest generation; -1 if there is none."""
        return -1 if self.lineage is None else self.lineage.generation

    def in_sync_enough(self, partition: int) -> bool:
        """Whether the leader would accept a record with acks="all" now; True if the metadata does not tell.

        As for the leader, at most all replicas have to be in sync (`Partition.effective_min_isr`).
        """
        known = self.partitions.get(partition)
        return known is None or len(known.isr) >= min(self.min_insync_replicas, len(known.replicas))

    @property
    def live(self) -> tuple[int, ...]:
        """The partitions that producers may write to, rising, without sealed ones."""
        if self.lineage is not None:
            return tuple(range(self.lineage.count))
        return tuple(sorted(index for index, one in self.partitions.items() if not one.marked_for_deletion))


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """A snapshot. `errors` holds the topics with an error in the newest response; older errors are dropped."""

    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    errors: Mapping[str, ErrorCode] = field(default_factory=dict)
    controller_id: int = -1
    cluster_id: str | None = None
    lineages: Mapping[bytes, Lineage] = field(default_factory=dict)
    """The newest known lineage per topic id; kept while responses lack the topic."""
    vanished: Mapping[str, Topic] = field(default_factory=dict)
    """Topics that a response said to be unknown, as they were before: the node may have just started, and the next one
    may be a stale node, whose old leaders must not come back."""
    awaited_epochs: Mapping[tuple[str, bytes, int], int] = field(default_factory=dict)
    """Leader epochs that others have seen, newer than in `topics`: topic, topic id, partition -> epoch (KIP-320)."""

    def partition(self, topic: str, index: int) -> Partition | None:
        """Return one partition, None if it is unknown."""
        known = self.topics.get(topic)
        return None if known is None else known.partitions.get(index)

    def leader(self, topic: str, index: int) -> int:
        """Return the leader's node id; NO_LEADER if there is none, none that is reachable, or a newer one."""
        one = self.partition(topic, index)
        if one is None or one.leader not in self.nodes or self._is_replaced(topic, one):
            return NO_LEADER
        return one.leader

    def has_removed(self, topic: str, index: int) -> bool:
        """Whether a merge has removed the partition. One that never existed may be created soon."""
        known = self.topics.get(topic)
        if known is None or known.lineage is None or index in known.partitions or index < 0:
            return False
        return not known.lineage.live(index) and bool(known.lineage.class_generations(index))

    def leader_epoch(self, topic: str, index: int) -> int:
        """Return the newest known leader epoch of a partition; -1 for none."""
        one = self.partition(topic, index)
        return one.leader_epoch if one is not None else -1

    def _is_replaced(self, topic: str, one: Partition) -> bool:
        """Whether others have seen a newer leader."""
        awaited = self.awaited_epochs
        return bool(awaited) and one.leader_epoch < awaited.get((topic, self.topics[topic].topic_id, one.index), -1)

    def await_epochs(self, seen: Mapping[TopicPartition, int]) -> ClusterMetadata:
        """Return the snapshot without leaders that are older than these epochs; their successors are unknown yet."""
        newer = {
            (place.topic, self.topics[place.topic].topic_id, place.partition): epoch
            for place, epoch in seen.items()
            if (one := self.partition(*place)) is not None and -1 < one.leader_epoch < epoch
        }
        return replace(self, awaited_epochs={**self.awaited_epochs, **newer}) if newer else self

    def obstacle(self, topic: str, index: int | None = None) -> str:
        """Describe why a topic or partition is not usable; empty if the metadata shows no reason."""
        known = self.topics.get(topic)
        if topic in self.errors:
            return f"the cluster answers {self.errors[topic].name} for {topic}"
        if known is None:
            return f"no metadata of {topic}"
        if index is None:
            return "" if known.partitions else f"{topic} has no partitions"
        one = known.partitions.get(index)
        if one is None:
            removed = ": a merge has removed it" if self.has_removed(topic, index) else ""
            return f"{topic} has no partition {index}{removed}"
        if one.leader == NO_LEADER:
            return f"{topic}-{index} has no leader"
        if self._is_replaced(topic, one):
            return f"{topic}-{index} has a newer leader than node {one.leader}"
        return "" if one.leader in self.nodes else f"node {one.leader}, the leader of {topic}-{index}, is not available"

    def update(self, response: MetadataResponse, *, complete: bool) -> ClusterMetadata:
        """Return the snapshot after another response. `complete`: it listed all topics, so missing ones are deleted."""
        if not response.brokers and self.nodes:
            # From a node that has just started: it knows neither itself nor any topic yet.
            return replace(self, errors={})
        topics = {} if complete else dict(self.topics)
        errors: dict[str, ErrorCode] = {}
        lineages, vanished = dict(self.lineages), dict(self.vanished)
        for answered in response.topics:
            name = answered.name
            if name is None:
                continue
            code = ErrorCode(answered.error_code)
            if code != ErrorCode.NONE:
                errors[name] = code
                if not code.retriable or code in (
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    ErrorCode.UNKNOWN_TOPIC_ID,
                ):
                    gone = topics.pop(name, None)
                    if gone is not None and gone.topic_id != ZERO_UUID:
                        vanished[name] = gone
                continue
            known = vanished.pop(name, None) or self.topics.get(name)
            topics[name] = _merge(answered, name, known, lineages)
        awaited = {
            (name, topic_id, index): epoch
            for (name, topic_id, index), epoch in self.awaited_epochs.items()
            if (topic := topics.get(name)) is not None
            and topic.topic_id == topic_id
            and (one := topic.partitions.get(index)) is not None
            and one.leader_epoch < epoch
        }
        return replace(
            self,
            nodes={
                broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
                for broker in response.brokers
            }
            or self.nodes,
            topics=topics,
            errors=errors,
            controller_id=response.controller_id,
            cluster_id=response.cluster_id or self.cluster_id,
            lineages=lineages,
            vanished=vanished,
            awaited_epochs=awaited,
        )


def _merge(answered: MetadataResponseTopic, name: str, known: Topic | None, lineages: dict[bytes, Lineage]) -> Topic:
    if known is not None and known.topic_id != answered.topic_id:
        known = None
    lineage = _lineage_of(answered)
    newest = lineages.get(answered.topic_id) if answered.topic_id != ZERO_UUID else None
    behind = newest is not None and (lineage is None or lineage.generation < newest.generation)
    if behind:
        lineage = newest
    elif lineage is not None and answered.topic_id != ZERO_UUID:
        lineages[answered.topic_id] = lineage
    partitions = _merge_partitions(answered.partitions, known.partitions if known is not None else {}, behind=behind)
    return Topic(
        name=name,
        topic_id=answered.topic_id,
        partitions=partitions,
        internal=answered.is_internal,
        lineage=lineage,
        initial_partition_count=answered.initial_partition_count,
        min_insync_replicas=answered.min_insync_replicas,
        gated=answered.ordered_delivery,
        has_generations=answered.has_generations or (known is not None and known.has_generations),
    )


def _merge_partitions(
    answered: Iterable[MetadataResponsePartition], known: Mapping[int, Partition], *, behind: bool
) -> dict[int, Partition]:
    """Merge the partitions of a response: unlisted ones are removed, unless the response is `behind` others."""
    merged = dict(known) if behind else {}
    for one in answered:
        before = known.get(one.partition_index)
        if before is not None and one.leader_epoch < before.leader_epoch and one.leader_epoch >= 0:
            merged[one.partition_index] = before
            continue
        merged[one.partition_index] = Partition(
            index=one.partition_index,
            leader=one.leader_id,
            leader_epoch=one.leader_epoch,
            replicas=tuple(one.replica_nodes),
            isr=tuple(one.isr_nodes),
            error=ErrorCode(one.error_code),
            gen_start=tuple((step.generation, step.leader_epoch) for step in one.gen_start),
            marked_for_deletion=one.marked_for_deletion,
            partition_epoch=one.partition_epoch,
        )
    return merged


def _lineage_of(answered: MetadataResponseTopic) -> Lineage | None:
    if answered.base < 1 or not answered.history:
        return None
    return Lineage(answered.base, [(step.generation, step.count) for step in answered.history])
