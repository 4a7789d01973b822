"""The gates that a coordinator holds for stock members: which partitions they may be assigned, and when that changes.

A stock member reads its partitions to the end. So a child partition is assigned to no stock member before the group has
committed everything deliverable in the key epochs that held its keys before. The decision is never stored. It is
computed each time from stable commits, by the function that our own consumer uses (`protocol.order_gates`); a commit
that moves backwards closes a gate again. `gated_topic.are_held` selects the topics.

Before a child is assigned, `group_start_offsets` commits its start if necessary. When a gate opens, the group
rebalances; gates that open within `OPENING_DELAY_MS` share one rebalance.

Invariant: a partition of such a topic is assigned only if this broker's metadata has it with its lineage, and its gate
can be evaluated. Groups on topics that need no order, and members that hold gates, have no extra cost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_events import GatedPartitions
from anabranch.broker.coordinators.classic_groups.group_state import STABLE
from anabranch.broker.coordinators.gates.gated_topic import ANY_OFFSET, GatedTopic, OffsetOf, are_held
from anabranch.broker.coordinators.groups.group_start_offsets import GroupStartOffsets
from anabranch.broker.coordinators.offsets.committed_offsets import TopicPartition
from anabranch.controller.zk.session import ConnectionLoss, SessionExpired
from anabranch.protocol.consumer_protocol import assigned_partitions
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.order_gates import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from anabranch.broker.coordinators.gates.key_epoch_ends import KeyEpochEnds
    from anabranch.broker.coordinators.groups.group_offsets import GroupOffsets
    from anabranch.broker.coordinators.groups.group_runtime import GroupRuntime
    from anabranch.broker.coordinators.groups.group_shards import GroupEntry
    from anabranch.broker.metadata.metadata_cache import MetadataCache, TopicImage
    from anabranch.broker.metadata.topic_configs import TopicConfigs
    from anabranch.protocol.order_gates import Wait

log: Final = logging.getLogger(__name__)

OPENING_DELAY_MS: Final = 300
"""The delay after a gate opens, in which more may open; no delay if all are open."""
ASSIGNMENT_WAIT_S: Final = 1.0
"""The time that an assignment waits for leaders to report key epoch ends. Partitions with unknown ends are withheld."""
COMPLETE_WAIT_MS: Final = 5000
RETRY_S: Final = 0.2
"""The pause after a leader could not report the end of a key epoch."""
AGAIN_S: Final = 5.0
"""The pause between two checks of what is deliverable, while a group waits."""
NEW_GROUP: Final = "the coordinator has no metadata of the partition yet"
UNSTARTED: Final = "the coordinator is committing its start offset"

Found = TypeVar("Found")


class GroupGates:
    """The gates of all groups of one broker."""

    def __init__(
        self,
        runtime: GroupRuntime,
        offsets: GroupOffsets,
        metadata: MetadataCache,
        configs: TopicConfigs,
        ends: KeyEpochEnds,
    ) -> None:
        self._runtime = runtime
        self._starts = GroupStartOffsets(runtime, offsets)
        self._metadata = metadata
        self._configs = configs
        self._ends = ends
        self._topics: dict[str, GatedTopic] = {}
        self._waiting: dict[GroupEntry, None] = {}
        self._restored: dict[GroupEntry, tuple[int, dict[str, int]]] = {}
        """Group -> its generation, assigned by an earlier coordinator, and its topics with the newest known resizes."""
        self._watched: dict[str, asyncio.Event] = {}
        metadata.on_lineages(self.on_topics_changed)
        configs.on_change(lambda name: self.on_topics_changed([name]))

    async def stop(self) -> None:
        """Stop querying leaders."""
        await self._ends.close()

    # --- before an assignment ------------------------------------------------------------------------------------

    async def prepare(self, slot: GroupEntry, names: Iterable[str]) -> None:
        """Load the metadata and key epoch ends that an assignment of these topics needs; commit children's starts."""
        for name in names:
            if name not in self._metadata.image.topics and not self._metadata.image.complete:
                await self._metadata.wait_until(lambda image: image.complete, COMPLETE_WAIT_MS)
            topic = await self._topic(name)
            if topic is None:
                continue
            if untold := topic.unknown_key_epochs():
                try:
                    async with asyncio.timeout(ASSIGNMENT_WAIT_S):
                        await self._ends.ask(topic, untold)
                except TimeoutError:
                    log.info("%s: assigning before all key epoch ends of %s are known", slot.group_id, name)
            await self._starts.commit_child_starts(slot, topic)

    async def prepare_for_member(self, slot: GroupEntry, names: Iterable[str]) -> None:
        """Prepare an assignment for a member's request. Raises COORDINATOR_NOT_AVAILABLE if ZooKeeper does not answer.

        Members retry after that; stock members end after an error that Kafka's coordinators do not send.
        """
        try:
            await self.prepare(slot, names)
        except (ConnectionLoss, SessionExpired) as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"ZooKeeper has not answered ({error})") from error

    async def _topic(self, name: str) -> GatedTopic | None:
        """Return a gated topic with the newest metadata; None if this broker holds no gates for it."""
        image = self._metadata.topic(name)
        if image is not None and image.generation > 0:
            await self._configs.load(name)
            image = self._metadata.topic(name)
        return self._held_topic(name, image)

    def _held_topic(self, name: str, image: TopicImage | None) -> GatedTopic | None:
        if image is None or not self._holds(image):
            self._topics.pop(name, None)
            return None
        topic = self._topics.get(name)
        if topic is None or topic.image.topic_id != image.topic_id:
            topic = self._topics[name] = GatedTopic(image)
        elif topic.image is not image:
            topic.refresh(image)
        return topic

    def _holds(self, image: TopicImage) -> bool:
        return image.base >= 1 and are_held(self._configs.get(image.name), has_generations=image.has_generations)

    # --- what may be assigned ------------------------------------------------------------------------------------

    def assignable(self, slot: GroupEntry, names: Iterable[str]) -> dict[str, Collection[int]]:
        """Return topic -> the partitions that stock members may have. Topics without gates are left out."""
        found: dict[str, Collection[int]] = {}
        for name in names:
            image = self._metadata.topic(name)
            topic = self._held_topic(name, image)
            if topic is not None:
                found[name] = topic.image.partitions.keys() - self._reasons(slot, topic).keys()
            elif image is None and not self._metadata.image.complete:
                found[name] = ()
        return found

    def parents(self, image: TopicImage) -> Mapping[int, int]:
        """Return the child partitions of a topic, each with its parent."""
        topic = self._held_topic(image.name, image)
        return {} if topic is None else {child.partition: one for child, one in topic.children(-1).items()}

    def reasons(self, slot: GroupEntry) -> dict[TopicPartition, str]:
        """Return the withheld partitions of the group's current assignment, each with the reason."""
        states: dict[TopicPartition, str] = {}
        by_topic = {name: self._topics.get(name) for name, _ in slot.withheld}
        why = {name: self._reasons(slot, topic) for name, topic in by_topic.items() if topic is not None}
        for name, index in sorted(slot.withheld):
            known = by_topic[name]
            if known is None or index not in known.image.partitions:
                states[name, index] = NEW_GROUP
            elif index in why[name]:
                states[name, index] = "; ".join(map(str, why[name][index])) or UNSTARTED
            else:
                states[name, index] = "open: it is in the next assignment"
        return states

    def _reasons(self, slot: GroupEntry, topic: GatedTopic) -> dict[int, tuple[Wait, ...]]:
        name = topic.image.name
        withheld = topic.withheld(self._offsets(slot, name))
        known = slot.gates.noted.get(name, -1)
        if known < topic.image.generation:
            withheld = {child.partition: () for child in topic.children(known)} | withheld
        return withheld

    def _offsets(self, slot: GroupEntry, name: str) -> OffsetOf:
        """Return the group's commits in a topic. Once the topic is in `let_go`, a missing commit opens every gate."""
        offsets = slot.offsets
        if name not in slot.gates.let_go:
            return lambda index: offsets.offset_of((name, index))

        def passed_offset(index: int) -> int:
            known = offsets.offset_of((name, index))
            return ANY_OFFSET if known == UNKNOWN else known

        return passed_offset

    # --- openings ------------------------------------------------------------------------------------------------

    def update_watch(self, slot: GroupEntry) -> None:
        """Start or stop the watch of a group after an event, by whether partitions are withheld from it."""
        if slot.withheld:
            if slot not in self._waiting:
                self._waiting[slot] = None
                self.refresh(slot)
            return
        if slot in self._waiting:
            self.forget(slot)
        if not isinstance(slot.group, ClassicGroup) or slot.group.state is STABLE:  # else the next assignment decides
            slot.gates.waiting_since_ms.clear()

    def forget(self, slot: GroupEntry) -> None:
        """Stop the watch of a group that is deleted, lacks no partition, or rebalances."""
        self._waiting.pop(slot, None)
        self._restored.pop(slot, None)
        slot.gates.awaited.clear()
        slot.gates.opening_at_ms = slot.gates.patient_until_ms = None

    def on_offsets_committed(self, slot: GroupEntry, partitions: Iterable[TopicPartition]) -> None:
        """Refresh a group whose gates wait for these partitions; their commits are stable."""
        if slot.gates.awaited and not slot.gates.awaited.isdisjoint(partitions):
            self.refresh(slot)

    def refresh(self, slot: GroupEntry) -> None:
        """Evaluate the gates of a group's withheld partitions, and schedule a rebalance if some have opened."""
        gates, now_ms = slot.gates, self._runtime.clock_ms()
        closed = self._closed_gates(slot)
        gates.awaited = {(name, wait.key_epoch.partition) for (name, _), waits in closed.items() for wait in waits}
        opened = slot.withheld - closed.keys()
        planned_ms = gates.opening_at_ms if gates.opening_at_ms is not None else now_ms + OPENING_DELAY_MS
        gates.opening_at_ms = None if not opened else planned_ms if closed else now_ms
        gates.patient_until_ms = self._deadline_ms(slot, {name for name, _ in closed}, now_ms)
        self._runtime.reschedule(slot)

    def _closed_gates(self, slot: GroupEntry) -> dict[TopicPartition, tuple[Wait, ...]]:
        closed: dict[TopicPartition, tuple[Wait, ...]] = {}
        for name in {name for name, _ in slot.withheld}:
            topic = self._held_topic(name, self._metadata.topic(name))
            if topic is None:
                continue  # this broker no longer holds its gates
            self._watch(name)
            reasons, there = self._reasons(slot, topic), topic.image.partitions
            for one in slot.withheld:
                if one[0] == name and (one[1] in reasons or one[1] not in there):
                    closed[one] = reasons.get(one[1], ())
        return closed

    def _deadline_ms(self, slot: GroupEntry, names: set[str], now_ms: int) -> int | None:
        """Return when `reshard.legacy.consumers.uncommitted.ms` ends for one of these topics; None if it never does."""
        due_ms, known = [], slot.gates.waiting_since_ms
        slot.gates.waiting_since_ms = {name: known.get(name, now_ms) for name in names}
        for name, since_ms in slot.gates.waiting_since_ms.items():
            timeout_ms = self._configs.get(name).reshard_legacy_consumers_uncommitted_ms
            if timeout_ms >= 0 and name not in slot.gates.let_go:
                due_ms.append(since_ms + timeout_ms)
        return min(due_ms, default=None)

    def is_due(self, slot: GroupEntry) -> bool:
        """Return whether it is time to rebalance the group because a gate has opened."""
        gates, now_ms = slot.gates, self._runtime.clock_ms()
        if gates.patient_until_ms is not None and gates.patient_until_ms <= now_ms:
            for name, since_ms in gates.waiting_since_ms.items():
                timeout_ms = self._configs.get(name).reshard_legacy_consumers_uncommitted_ms
                if 0 <= timeout_ms <= now_ms - since_ms:
                    log.warning("%s: gates of %s no longer wait for its uncommitted partitions", slot.group_id, name)
                    gates.let_go.add(name)
            self.refresh(slot)
        if gates.opening_at_ms is None or gates.opening_at_ms > now_ms:
            return False
        gates.opening_at_ms = None
        return True

    # --- changes -------------------------------------------------------------------------------------------------

    def on_loaded(self, slot: GroupEntry) -> None:
        """Find the partitions that a Stable group's assignment leaves out, after a load or a static member's return."""
        group = slot.group
        if isinstance(group, ClassicGroup) and group.state is STABLE and group.gated_by_broker:
            names = group.subscribed_topics() or frozenset()
            self._restored[slot] = (group.generation, {name: self._generation(name) for name in names})
            self._runtime.background.spawn(self._find(slot, group, group.generation))

    async def _find(self, slot: GroupEntry, group: ClassicGroup, generation: int) -> None:
        names = group.subscribed_topics() or frozenset()
        await retry_configs(lambda: self.prepare(slot, sorted(names)))
        held = [
            one for name in sorted(names) if (one := self._held_topic(name, self._metadata.topic(name))) is not None
        ]
        everything = {(topic.image.name, index) for topic in held for index in topic.image.partitions}
        missing = everything - {one for member in group.members for one in assigned_partitions(member.assignment)}
        if missing and slot.group is group and group.generation == generation:
            self._runtime.apply(slot, GatedPartitions(frozenset(missing)))
            if slot in self._waiting:  # perhaps for others only until now
                self.refresh(slot)

    def withhold_unassigned(self, slot: GroupEntry, names: Iterable[str]) -> None:
        """Record as withheld the partitions of these topics that the coordinator's assignment leaves out."""
        held = self.assignable(slot, names)
        slot.gates.withheld = frozenset(
            (name, index)
            for name, given in held.items()
            if (topic := self._topics.get(name)) is not None
            for index in topic.image.partitions.keys() - given
        )
        self.update_watch(slot)

    def on_topics_changed(self, names: Iterable[str]) -> None:
        """Refresh the groups that wait for these topics, after their metadata or configuration has changed."""
        for name in names:
            if name in self._watched:
                self._watched[name].set()
            for slot in self._waiting_for(name):
                self.refresh(slot)
            self._find_again(name)

    def _find_again(self, name: str) -> None:
        """Find what restored assignments leave out of a resize that this broker did not know when it loaded them."""
        for slot, (generation, resizes) in list(self._restored.items()):
            group, newest = slot.group, self._generation(name)
            if not isinstance(group, ClassicGroup) or group.state is not STABLE or group.generation != generation:
                del self._restored[slot]
            elif newest > resizes.get(name, newest):
                resizes[name] = newest
                self._runtime.background.spawn(self._find(slot, group, generation))

    def _generation(self, name: str) -> int:
        image = self._metadata.topic(name)
        return -1 if image is None else image.generation

    def _waiting_for(self, name: str) -> list[GroupEntry]:
        return [slot for slot in self._waiting if any(one[0] == name for one in slot.withheld)]

    def _watch(self, name: str) -> None:
        if name not in self._watched:
            self._watched[name] = asyncio.Event()
            self._runtime.background.spawn(self._watching(name, self._watched[name]))

    async def _watching(self, name: str, wakeup: asyncio.Event) -> None:
        """Query the leaders while a group waits: retention, compaction and transactions move what is deliverable."""
        try:
            while self._waiting_for(name) and (topic := await retry_configs(lambda: self._topic(name))) is not None:
                wakeup.clear()
                await self._ends.ask(topic, topic.unknown_key_epochs() or topic.affected_partitions())
                for slot in self._waiting_for(name):
                    await self._starts.commit_child_starts(slot, topic)
                    await self._starts.commit_log_starts(slot, topic)
                for slot in self._waiting_for(name):
                    self.refresh(slot)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_S if topic.unknown_key_epochs() else AGAIN_S):
                        await wakeup.wait()
        finally:
            del self._watched[name]


async def retry_configs(ask: Callable[[], Awaitable[Found]]) -> Found:
    """Retry while ZooKeeper cannot be asked for configurations."""
    while True:
        try:
            return await ask()
        except (ConnectionLoss, SessionExpired) as error:
            log.info("cannot read from ZooKeeper which topics are gated: %s", error)
            await asyncio.sleep(RETRY_S)
