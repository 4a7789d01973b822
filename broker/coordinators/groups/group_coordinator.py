"""The group coordinator: runs the effects of groups' state machines, sets their timers, and watches their offsets.

`group_machine`, `committed_offsets` and `consumer_positions` decide; the requests of each kind of group have a module
each (`classic_group_requests`, `consumer_group_requests`, ...). `group_table` finds a group, `group_offsets` stores
offsets, `leadership` loads and closes partitions of `__consumer_offsets`. A waiting request is a future inside a
machine: nothing polls, and no request has a task of its own.

Invariant: a commit is acknowledged and visible only after all in-sync replicas have its record; so is the assignment of
a generation. Source: kafka.coordinator.group.GroupCoordinator and GroupMetadataManager.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, assert_never

from anabranch.broker.coordinators.classic_groups import group_responses as responses
from anabranch.broker.coordinators.classic_groups import rebalance
from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_events import (
    Answer,
    Close,
    Delete,
    Effect,
    Event,
    GatesOpened,
    Heartbeat,
    Observe,
    Persist,
    Persisted,
    RebalanceRequired,
    Tick,
    Verdict,
)
from anabranch.broker.coordinators.classic_groups.group_machine import apply, restore
from anabranch.broker.coordinators.classic_groups.group_state import GroupLimits
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.metadata_topics import (
    MetadataTopics,
    added_partitions,
    every_partition,
)
from anabranch.broker.coordinators.gates.key_epoch_ends import KeyEpochEnds
from anabranch.broker.coordinators.gates.stock_members import stock_members_reading
from anabranch.broker.coordinators.groups.classic_group_requests import ClassicGroupRequests
from anabranch.broker.coordinators.groups.consumer_group_requests import ConsumerGroupRequests
from anabranch.broker.coordinators.groups.group_gates import GroupGates
from anabranch.broker.coordinators.groups.group_offsets import Doomed, GroupOffsets
from anabranch.broker.coordinators.groups.group_shards import AnyGroup, GroupEntry
from anabranch.broker.coordinators.groups.group_table import GroupTable
from anabranch.broker.coordinators.groups.group_transactions import GroupTransactions
from anabranch.broker.coordinators.groups.share_group_requests import ShareGroupRequests
from anabranch.broker.coordinators.groups.streams_group_requests import StreamsGroupRequests
from anabranch.broker.coordinators.offsets import consumer_positions
from anabranch.broker.coordinators.runtime.coordinator_tasks import CoordinatorTasks, CoordinatorTimer
from anabranch.broker.coordinators.runtime.journal import GROUP_ERRORS, Journal
from anabranch.broker.coordinators.share_groups.share_group import ShareGroup
from anabranch.broker.coordinators.streams_groups.streams_group import StreamsGroup
from anabranch.broker.profiles.profile import profile_for
from anabranch.protocol.apis.consumer_group_position import ConsumerGroupPositionRequest, ConsumerGroupPositionResponse
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import (
    CONSUMER_OFFSETS_TOPIC,
    GroupMetadataKey,
    GroupMetadataValue,
    encode_group,
    encode_key,
)

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.broker.coordinators.offsets.committed_offsets import TopicPartition
    from anabranch.broker.coordinators.share_partitions.share_services import ShareServices
    from anabranch.broker.metadata.group_configs import GroupConfigs
    from anabranch.broker.metadata.metadata_cache import MetadataCache, TopicImage
    from anabranch.broker.metadata.topic_configs import TopicConfigs
    from anabranch.broker.replication.replica_manager import ReplicaManager

log: Final = logging.getLogger(__name__)

RETENTION: Final = None
"""The key of the retention check among the deadlines; all other keys are group entries."""


class GroupCoordinator:
    """All groups whose partition of `__consumer_offsets` this broker leads."""

    def __init__(
        self,
        settings: BrokerSettings,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        configs: TopicConfigs,
        *,
        clock_ms: Callable[[], int],
        date_ms: Callable[[], int],
        rng: random.Random,
        shares: Callable[[], ShareServices],
        group_configs: GroupConfigs,
    ) -> None:
        self.settings = settings
        self.group_configs = group_configs
        self.clock_ms = clock_ms
        self.date_ms = date_ms
        self.rng = rng
        self._keeps_emptied_groups = profile_for(settings.kafka_version).keeps_emptied_groups
        self.listeners: dict[Callable[[str], None], None] = {}
        """Called with the name of a group whenever its state, its members or its offsets may have changed."""
        self.background = CoordinatorTasks("the group coordinator")
        self.alarm: CoordinatorTimer[GroupEntry | None] = CoordinatorTimer(clock_ms, self._on_timer)
        self.journal = Journal(replicas, timeout_ms=settings.offsets_commit_timeout_ms, clock_ms=date_ms)
        self.table = GroupTable(
            self.journal,
            self.background,
            limits=GroupLimits(
                session_timeout_ms_min=settings.group_min_session_timeout_ms,
                session_timeout_ms_max=settings.group_max_session_timeout_ms,
                size_max=settings.group_max_size,
                initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
            ),
            rng=rng,
            clock_ms=clock_ms,
            partition_count=lambda: metadata.partition_count(CONSUMER_OFFSETS_TOPIC),
            on_loaded=self._on_loaded,
            on_closed=self.close,
        )
        self.offsets = GroupOffsets(self)
        self.transactions = GroupTransactions(self, replicas)
        self.gates = GroupGates(self, self.offsets, metadata, configs, KeyEpochEnds(settings, metadata))
        assignable = MetadataTopics(metadata, self._assignable_to, self.gates.parents)
        self.consumers = ConsumerGroupRequests(self, assignable, self.gates)
        self.classic = ClassicGroupRequests(self, self.consumers, self.gates)
        to_share = MetadataTopics(metadata, every_partition, added_partitions)
        self.sharers = ShareGroupRequests(self, to_share, shares)
        self.streamers = StreamsGroupRequests(self, MetadataTopics(metadata))
        self.alarm.set(RETENTION, clock_ms() + settings.offsets_retention_check_interval_ms)
        replicas.on_leader(self.on_leader)
        replicas.on_confirmed(self.on_leader)
        replicas.on_resign(self.table.leadership.on_resign)
        metadata.on_gone(self.on_topics_gone)
        for partition in replicas.partitions():
            if partition.topic == CONSUMER_OFFSETS_TOPIC and partition.is_leader:
                self.on_leader(partition.topic, partition.index, partition.leader_epoch)

    async def stop(self) -> None:
        """Reject all waiting requests and stop coordinating groups."""
        self.table.leadership.stop()
        self.alarm.stop()
        await self.background.stop()
        await self.gates.stop()

    def step_down(self) -> None:
        """Coordinate no group until the controller confirms that this broker leads its partition, or makes it leader.

        The broker's session has expired. Another one may coordinate the groups since, and have removed members: a
        heartbeat that is answered here would let such a member go on.
        """
        self.table.leadership.close_all()

    def on_leader(self, topic: str, partition: int, leader_epoch: int) -> None:
        """Load a partition of `__consumer_offsets` that this broker now leads. The first one starts the timer."""
        if topic == CONSUMER_OFFSETS_TOPIC:
            self.alarm.start()
            self.table.leadership.on_leader(topic, partition, leader_epoch)

    def on_topics_gone(self, lost: Mapping[str, bytes]) -> None:
        """Drop all state of deleted topics: gate notes, share states and offsets. That of loading groups follows."""
        for shard in self.table.leadership.shards.values():
            if shard.loading:
                shard.lost_topics.update(lost)
        for slot in list(self.table.slots.values()):
            self._drop_topics(slot, lost)

    def _drop_topics(self, slot: GroupEntry, lost: Mapping[str, bytes]) -> None:
        gone, ids = lost.keys(), frozenset(lost.values())
        slot.gates.forget_topics(gone)
        if isinstance(slot.group, ShareGroup) and not ids.isdisjoint(slot.group.names):
            self.background.spawn(self.sharers.topics_gone(slot, ids))
        if dead := slot.offsets.partitions_of(gone):
            self.background.spawn(self.offsets.remove_topics(slot, dead))

    def _assignable_to(self, group_id: str, topic: TopicImage) -> tuple[int, ...]:
        """Return the partitions of a topic that members of a KIP-848 group may have."""
        slot = self.table.slots.get(group_id)
        partitions = None if slot is None else self.gates.assignable(slot, [topic.name]).get(topic.name)
        return tuple(sorted(topic.partitions if partitions is None else partitions))

    def downgrade(self, slot: GroupEntry, value: GroupMetadataValue) -> None:
        """Convert a KIP-848 group to a classic group whose members have to join again."""
        group = restore(slot.group_id, value, self.table.limits, self.rng, self.clock_ms())
        rebalance.start(group, self.clock_ms())
        slot.group = group
        for effect in group.take_effects():
            self.run(slot, effect)

    # --- state machines ------------------------------------------------------------------------------------------

    def apply(self, slot: GroupEntry, event: Event) -> None:
        """Apply an event to a classic group's state machine and run the effects."""
        group = slot.classic
        before, generation = group.state, group.generation
        for effect in apply(group, event, self.clock_ms(), date_ms=self.date_ms()):
            self.run(slot, effect)
        if group.state is not before or group.generation != generation:
            log.debug("%s: %s", group.describe(), responses.error_reason(event))
        if not isinstance(event, Heartbeat | Close):  # heartbeats only move deadlines later
            self.gates.update_watch(slot)
            self.reschedule(slot)

    def run(self, slot: GroupEntry, effect: Effect) -> None:
        """Run one effect of a group's state machine."""
        match effect:
            case Answer():
                _answer(effect)
            case Persist():
                self.background.spawn(self._persist(slot, effect))
            case RebalanceRequired(error=error):
                for answer in slot.positions.interrupt(error):
                    _answer(answer)
            case Verdict():
                raise AssertionError(f"{effect} is a result of `GroupEntry.authorize` only")
            case _:
                assert_never(effect)

    async def _persist(self, slot: GroupEntry, effect: Persist) -> None:
        key = encode_key(GroupMetadataKey(group=slot.group_id))
        error = ErrorCode.NONE
        try:
            await slot.write(self.journal, [(key, encode_group(effect.value))], GROUP_ERRORS)
        except KafkaError as refused:
            log.warning("%s could not be stored: %s", slot.group.describe(), refused)
            error = refused.code
        if not isinstance(slot.group, ClassicGroup):
            # It was converted during the write, and has rejected the requests that waited in it.
            if effect.answer is not None:
                rejected = responses.with_error(effect.answer.response, ErrorCode.REBALANCE_IN_PROGRESS)
                _answer(Answer(effect.answer.ticket, rejected))
            return
        self.apply(
            slot,
            Persisted(generation=effect.generation, error=error, answer=effect.answer, replaced=effect.replaced),
        )

    def reschedule(self, slot: GroupEntry) -> None:
        """Set the timer to the next deadline of a group, or forget the group if it is vacant."""
        self._notify(slot)
        if not self.table.knows(slot):
            return
        if slot.vacant:
            self._forget(slot)
            return
        self.alarm.set(slot, slot.next_deadline())

    def _on_timer(self, slot: GroupEntry | None, now_ms: int) -> None:
        if slot is RETENTION:
            self.alarm.set(RETENTION, now_ms + self.settings.offsets_retention_check_interval_ms)
            self.background.spawn(self.offsets.expire())
            return
        for answer in slot.positions.expire(slot.offsets.offset_of, now_ms):
            _answer(answer)
        opens = self.gates.is_due(slot)
        if isinstance(slot.group, ConsumerGroup):
            if opens:
                slot.group.metadata_seen = None  # the next heartbeat rereads the topics and finds the opened partitions
            self.background.spawn(self.consumers.expire(slot))
        elif isinstance(slot.group, ShareGroup):
            self.background.spawn(self.sharers.expire(slot))
        elif isinstance(slot.group, StreamsGroup):
            self.background.spawn(self.streamers.expire(slot))
        else:
            if opens:
                self.apply(slot, GatesOpened())
            self.apply(slot, Tick())

    def close(self, slot: GroupEntry, error: ErrorCode) -> None:
        """Forget a group that is deleted or coordinated by another broker, and reject its waiting requests."""
        self._forget(slot)
        if not isinstance(slot.group, ClassicGroup):
            slot.group.dead = True
            self.run(slot, RebalanceRequired(error))
        else:
            self.apply(slot, Close(error))

    def _on_loaded(self, slot: GroupEntry) -> None:
        slot.outlives_offsets = self._keeps_emptied_groups and bool(slot.offsets)
        self.consumers.on_loaded(slot)
        self.sharers.on_loaded(slot)
        self.streamers.on_loaded(slot)
        self.reschedule(slot)
        self.gates.on_loaded(slot)
        if lost := self.table.leadership.shards[slot.partition].lost_topics:
            self._drop_topics(slot, lost)

    def on_offsets_committed(self, slot: GroupEntry, partitions: Collection[TopicPartition]) -> None:
        """Complete the requests that wait for these offsets, which are now stable."""
        slot.outlives_offsets = self._keeps_emptied_groups
        self._notify(slot)
        for answer in slot.positions.on_offsets_committed(partitions, slot.offsets.offset_of):
            _answer(answer)
        self.gates.on_offsets_committed(slot, partitions)

    def _notify(self, slot: GroupEntry) -> None:
        for listener in self.listeners:
            listener(slot.group_id)

    def _forget(self, slot: GroupEntry) -> None:
        self.gates.forget(slot)
        self.table.forget(slot)
        self.alarm.forget(slot)

    # --- positions -----------------------------------------------------------------------------------------------

    async def position(self, request: ConsumerGroupPositionRequest, *, version: int) -> ConsumerGroupPositionResponse:
        """Exchange positions (v0), or wait for committed offsets (v1)."""
        slot: GroupEntry | None = None
        try:
            if request.group_id == "":
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            slot = self.table.find_or_create(request.group_id)
            slot.authorize(Observe(member_id=request.member_id, generation=request.generation_id), self.clock_ms())
        except KafkaError as error:
            if slot is not None:
                self.reschedule(slot)
            return consumer_positions.refusal(error.code)
        if version == 0:
            members = slot.group.members
            known = members.keys() if isinstance(members, dict) else members.by_id.keys()
            slot.positions.forget(slot.positions.members() - known)
            exchanged = slot.positions.exchange(request)
            self.reschedule(slot)
            return exchanged
        ticket: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        for answer in slot.positions.watch(ticket, request, slot.offsets.offset_of, self.clock_ms()):
            _answer(answer)
        self.reschedule(slot)
        try:
            response: ConsumerGroupPositionResponse = await ticket
        finally:
            slot.positions.drop(ticket)
            self.reschedule(slot)
        return response

    # --- administration ------------------------------------------------------------------------------------------

    def group(self, group_id: str) -> AnyGroup | None:
        """Return a group that this broker coordinates. Raises KafkaError."""
        slot = self.table.find(group_id)
        return None if slot is None else slot.group

    def withheld(self, group_id: str) -> Mapping[TopicPartition, str]:
        """Return the partitions withheld from the stock members of a group, each with the reason."""
        slot = self.table.slots.get(group_id)
        return {} if slot is None or not slot.withheld else self.gates.reasons(slot)

    def groups(self) -> list[AnyGroup]:
        """Return the groups that this broker coordinates."""
        return [slot.group for slot in self.table.slots.values()]

    @property
    def loading(self) -> bool:
        """Whether `groups` may be incomplete."""
        return self.table.leadership.loading

    @property
    def coordinated(self) -> list[int]:
        """The partitions of `__consumer_offsets` whose groups are all in `groups`."""
        return [shard.partition for shard in self.table.leadership.shards.values() if not shard.loading]

    def stock_members(self, group: AnyGroup, topic: str) -> list[str]:
        """Return the stock members of a group that read a topic, by name and address."""
        return stock_members_reading(group, topic, self.consumers.topics.of(group.group_id, gated=False))

    async def delete(self, group_id: str) -> None:
        """Delete an Empty group and its offsets. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        slot = self.table.find(group_id)
        if slot is None or slot.vacant:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, group_id)
        slot.authorize(Delete(), self.clock_ms())
        await self.sharers.delete_states(slot)

        def choose() -> Doomed:
            slot.authorize(Delete(), self.clock_ms())  # a member may have joined meanwhile
            return Doomed(slot.offsets.partitions(), slot.tombstones())

        await self.offsets.delete(slot, choose)
        self.offsets.close_if_empty(slot)


def _answer(answer: Answer) -> None:
    if not answer.ticket.done():  # the client may have disconnected
        answer.ticket.set_result(answer.response)
