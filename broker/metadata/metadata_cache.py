"""The metadata cache: an immutable image of the cluster, replaced by each UpdateMetadata of the controller.

A handler reads `cache.image` once, so one response never mixes two states. A topic's update is applied as a whole: its
generation, history and partitions change together.

Invariant (R12): an image never shows a leader epoch >= genStart_p[g] while the topic's generation is < g. A resize
raises the epochs of affected partitions *before* it publishes the new generation. Until then the image clamps such an
epoch to the last one of the published generation, and hides new partitions. Otherwise a consumer that fetched with the
new epoch would read records of a generation whose gate it cannot know yet.

The cost of an update is proportional to the partitions it names, apart from two copies of a dict of all topics. Nothing
iterates over all topics, or over all partitions of a topic when one changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, TypeVar

from anabranch.broker.config.listeners import PLAINTEXT, PROTOCOLS
from anabranch.protocol.apis.update_metadata import UpdateMetadataTopicState
from anabranch.protocol.values import value
from anabranch.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from anabranch.protocol.apis.update_metadata import (
        UpdateMetadataBroker,
        UpdateMetadataPartitionState,
        UpdateMetadataRequest,
    )

Key = TypeVar("Key")
Known = TypeVar("Known")

FULL_UPDATE: Final = 2
LEADER_DURING_DELETE: Final = -2
"""The leader that UpdateMetadata gives to partitions whose topic is being deleted."""


@value
class BrokerImage:
    """One live broker."""

    id: int
    host: str
    """The host of the inter-broker endpoint, to which other nodes connect."""
    port: int
    rack: str | None
    epoch: int
    endpoints: Mapping[str, tuple[str, int]] = field(default_factory=dict, repr=False)
    """Listener -> host and port."""

    def at(self, listener: str) -> tuple[str, int] | None:
        """The endpoint at a listener; None if the broker has no listener of this name."""
        return self.endpoints.get(listener)


@value
class PartitionImage:
    """The state of one partition."""

    index: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    partition_epoch: int
    generation: int = -1
    gen_start: tuple[tuple[int, int], ...] = ()
    """(generation, first leader epoch of it), ascending."""
    marked_for_deletion: bool = False


@value
class TopicImage:
    """One topic: its partitions and its resize history (R1)."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionImage]
    undeleted_partition_count: int = -1
    generation: int = -1
    initial_partition_count: int = -1
    history: tuple[tuple[int, int], ...] = ()
    """(generation, partition count), ascending."""
    base: int = -1
    ordered_delivery: bool = False
    min_insync_replicas: int = -1
    has_generations: bool = False
    """Whether the topic holds batches with a generation."""
    reported: Mapping[int, PartitionImage] = field(default_factory=dict, repr=False)
    """The partitions as the controller sent them; `partitions` holds what clients may see of them (R12)."""

    def has_had(self, index: int) -> bool:
        """Return whether the topic has or had this partition. A removed index may be used again; it continues (R14)."""
        return index in self.partitions or 0 <= index < max((count for _, count in self.history), default=0)


@value
class ClusterImage:
    """An immutable snapshot of the cluster's brokers and topics."""

    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    names: Mapping[bytes, str] = field(default_factory=dict)
    """Topic id -> name."""
    alike: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Topics whose names contain '.' or '_', by their name in metrics (`metric_name`)."""
    controller_id: int = -1
    """The id of the active controller, which need not be a broker."""
    complete: bool = False
    """Whether a controller has sent a full update; before that, a missing topic may exist."""
    brokers_max: int = 0
    """The most brokers that were alive at a time, in this image or an earlier one."""

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """One partition, or None when the topic or the index is unknown."""
        known = self.topics.get(topic)
        return None if known is None else known.partitions.get(index)


class MetadataCache:
    """Holds the current image, applies UpdateMetadata, calls listeners and wakes waiting tasks."""

    def __init__(self, inter_broker_listener: str = PLAINTEXT) -> None:
        self.image = ClusterImage()
        self._inter_broker_listener = inter_broker_listener
        self._listeners: list[Callable[[ClusterImage, ClusterImage], None]] = []
        self._on_gone: list[Callable[[Mapping[str, bytes]], None]] = []
        self._on_lineages: list[Callable[[Collection[str]], None]] = []
        self._waiters: list[tuple[Callable[[ClusterImage], bool], asyncio.Future[None]]] = []

    def partition_count(self, name: str) -> int | None:
        """The number of a topic's partitions; None if the topic is not known."""
        topic = self.topic(name)
        return None if topic is None else len(topic.partitions)

    def broker(self, broker_id: int) -> BrokerImage | None:
        """A live broker by id."""
        return self.image.brokers.get(broker_id)

    def topic(self, name: str) -> TopicImage | None:
        """A topic by name."""
        return self.image.topics.get(name)

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """A partition by topic name and index."""
        return self.image.partition(topic, index)

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id."""
        return self.image.names.get(topic_id)

    def topic_id(self, name: str) -> bytes:
        """The id of a topic; ZERO_UUID when unknown."""
        topic = self.image.topics.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def on_change(self, listener: Callable[[ClusterImage, ClusterImage], None]) -> None:
        """Call `listener(before, after)` after every update."""
        self._listeners.append(listener)

    def on_gone(self, listener: Callable[[Mapping[str, bytes]], None]) -> None:
        """Call `listener(ids by name)` after topics are deleted; new topics may already have their names."""
        self._on_gone.append(listener)

    def on_lineages(self, listener: Callable[[Collection[str]], None]) -> None:
        """Call `listener(names)` after an update that contains topics with a generation above 0."""
        self._on_lineages.append(listener)

    async def wait_until(self, condition: Callable[[ClusterImage], bool], timeout_ms: float | None) -> bool:
        """Wait until the image satisfies `condition`; return False after the timeout (None: no timeout)."""
        if condition(self.image):
            return True
        if timeout_ms is not None and timeout_ms <= 0:
            return False
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (condition, arrived)
        self._waiters.append(entry)
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await arrived
        except TimeoutError:
            return False
        finally:
            self._waiters.remove(entry)
        return True

    def apply(self, request: UpdateMetadataRequest) -> None:
        """Replace the image with one that includes this update, and call the listeners."""
        before = self.image
        self.image = apply_update(before, request, self._inter_broker_listener)
        for listener in self._listeners:
            listener(before, self.image)
        if lost := gone(before, self.image, request):
            for hears_of_lost in self._on_gone:
                hears_of_lost(lost)
        if names := [one.topic_name for one in grouped_by_topic(request) if one.generation > 0]:
            for hears_of_names in self._on_lineages:
                hears_of_names(names)
        for condition, arrived in self._waiters:
            if not arrived.done() and condition(self.image):
                arrived.set_result(None)


def apply_update(
    image: ClusterImage, request: UpdateMetadataRequest, inter_broker_listener: str = PLAINTEXT
) -> ClusterImage:
    """Return the image after an update: brokers are replaced, topics are merged one by one.

    A full update (type 2) also removes the topics and partitions that it does not name.
    """
    full = request.type == FULL_UPDATE
    topics = {} if full else copy_dict(image.topics)
    names = {} if full else copy_dict(image.names)
    alike: Mapping[str, tuple[str, ...]] = {} if full else image.alike
    for state in grouped_by_topic(request):
        before = topics.get(state.topic_name)
        after = merge_topic(before, state)
        if before is not None and (after is None or after.topic_id != before.topic_id):
            names.pop(before.topic_id, None)
        if (before is None) != (after is None) and can_collide(state.topic_name):
            alike = with_metric_name(alike, state.topic_name, there=after is not None)
        if after is None:
            topics.pop(state.topic_name, None)
            continue
        topics[after.name] = after
        if after.topic_id != ZERO_UUID:
            names[after.topic_id] = after.name
    brokers = {broker.id: broker_image(broker, inter_broker_listener) for broker in request.live_brokers}
    return ClusterImage(
        brokers,
        topics,
        names,
        alike,
        request.controller_id,
        full or image.complete,
        max(len(brokers), image.brokers_max),
    )


def copy_dict(known: Mapping[Key, Known]) -> dict[Key, Known]:
    """Copy a dict. `dict(known)` copies entry by entry once an entry was ever removed; `dict.copy` does not."""
    return known.copy() if isinstance(known, dict) else dict(known)


def metric_name(name: str) -> str:
    """A topic's name in Kafka's metrics, in which '.' and '_' collide."""
    return name.replace(".", "_")


def can_collide(name: str) -> bool:
    """Whether another topic name can collide with this one in metrics."""
    return "." in name or "_" in name


def with_metric_name(alike: Mapping[str, tuple[str, ...]], name: str, *, there: bool) -> Mapping[str, tuple[str, ...]]:
    """Return `alike` with this topic added (`there`) or removed."""
    others = tuple(one for one in alike.get(metric_name(name), ()) if one != name)
    changed = {**alike, metric_name(name): (*others, name) if there else others}
    if not changed[metric_name(name)]:
        del changed[metric_name(name)]
    return changed


def gone(before: ClusterImage, after: ClusterImage, request: UpdateMetadataRequest) -> dict[str, bytes]:
    """The topics that an update has removed or replaced by new ones of the same name: name -> old id."""
    updated = before.topics if request.type == FULL_UPDATE else [one.topic_name for one in grouped_by_topic(request)]
    lost = {}
    for name in updated:
        known, now = before.topics.get(name), after.topics.get(name)
        if known is not None and (now is None or is_another(known, now.topic_id)):
            lost[name] = known.topic_id
    return lost


def is_another(known: TopicImage, topic_id: bytes) -> bool:
    """Whether the topic was deleted and created again, with another id."""
    return ZERO_UUID not in (known.topic_id, topic_id) and known.topic_id != topic_id


def grouped_by_topic(request: UpdateMetadataRequest) -> Iterable[UpdateMetadataTopicState]:
    """The topics of an update; requests up to version 4 list partitions without topics."""
    if not request.ungrouped_partition_states:
        return request.topic_states
    grouped: dict[str, UpdateMetadataTopicState] = {}
    for partition in request.ungrouped_partition_states:
        name = partition.topic_name
        if name not in grouped:
            grouped[name] = UpdateMetadataTopicState(topic_name=name, partition_states=[])
        grouped[name].partition_states.append(partition)
    return grouped.values()


def merge_topic(before: TopicImage | None, state: UpdateMetadataTopicState) -> TopicImage | None:
    """Return a topic after its update, or None when it has no partition left.

    A different topic id means that the topic was deleted and created again: nothing of the old one is kept.
    """
    if before is not None and is_another(before, state.topic_id):
        before = None
    if before is not None and -1 < state.generation < before.generation:
        return before  # Non-obvious: an update sent before the last resize was published must not revert it.
    reported = {} if before is None else dict(before.reported)
    for partition in state.partition_states:
        if partition.leader == LEADER_DURING_DELETE:
            reported.pop(partition.partition_index, None)
        else:
            reported[partition.partition_index] = partition_image(partition)
    if not reported:
        return None
    topic = _with_topic_fields(before, state)
    updated = [partition.partition_index for partition in state.partition_states]
    if before is not None and before.generation == topic.generation and before.partitions.keys() >= set(updated):
        shown, looked_at = dict(before.partitions), updated
    else:
        shown, looked_at = {}, sorted(reported)
    for index in looked_at:
        image = visible(reported[index], topic.generation) if index in reported else None
        if image is not None:
            shown[index] = image
        else:
            shown.pop(index, None)
    return replace(topic, reported=reported, partitions=shown)


def visible(partition: PartitionImage, topic_generation: int) -> PartitionImage | None:
    """The partition as clients may see it while its topic is at this generation (R12); None hides it.

    The leader is not hidden: it fences a consumer with the clamped epoch, which then refreshes its metadata.
    """
    if not partition.gen_start or partition.gen_start[-1][0] <= topic_generation:
        return partition  # nearly all of thousands
    unpublished = next(start for start in partition.gen_start if start[0] > topic_generation)
    published = tuple(start for start in partition.gen_start if start[0] <= topic_generation)
    if not published:
        return None  # created by a resize that is not published yet
    return replace(
        partition,
        leader_epoch=min(partition.leader_epoch, unpublished[1] - 1),
        generation=published[-1][0],
        gen_start=published,
        marked_for_deletion=False,
    )


def partition_image(state: UpdateMetadataPartitionState) -> PartitionImage:
    """Convert a partition of UpdateMetadata."""
    return PartitionImage(
        index=state.partition_index,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=tuple(state.isr),
        replicas=tuple(state.replicas),
        offline_replicas=tuple(state.offline_replicas),
        partition_epoch=state.zk_version,
        generation=state.generation,
        gen_start=tuple(sorted([(start.generation, start.leader_epoch) for start in state.gen_start]))
        if state.gen_start
        else (),
        marked_for_deletion=state.marked_for_deletion,
    )


def broker_image(state: UpdateMetadataBroker, inter_broker_listener: str) -> BrokerImage:
    """Convert a broker of UpdateMetadata. An endpoint without a listener name gets the name of its protocol."""
    named = dict(enumerate(PROTOCOLS))
    endpoints = {
        one.listener or named.get(one.security_protocol, PLAINTEXT): (one.host, one.port) for one in state.endpoints
    }
    endpoints = endpoints or {PLAINTEXT: (state.v0_host, state.v0_port)}
    host, port = endpoints.get(inter_broker_listener) or next(iter(endpoints.values()))
    return BrokerImage(state.id, host, port, state.rack or None, state.broker_epoch, endpoints)


def _with_topic_fields(before: TopicImage | None, state: UpdateMetadataTopicState) -> TopicImage:
    """The topic-level fields after an update; an update without them (an older version) keeps the known ones."""
    if state.generation == -1 and before is not None:
        return before
    return TopicImage(
        name=state.topic_name,
        topic_id=state.topic_id if before is None or state.topic_id != ZERO_UUID else before.topic_id,
        partitions={},
        undeleted_partition_count=state.undeleted_partition_count,
        generation=state.generation,
        initial_partition_count=state.initial_partition_count,
        history=tuple(sorted((step.generation, step.count) for step in state.history)),
        base=state.base,
        ordered_delivery=state.ordered_delivery,
        min_insync_replicas=state.min_insync_replicas,
        has_generations=state.has_generations,
    )
