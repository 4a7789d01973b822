"""The group coordinator: which groups are ours, who waits for an answer, and when to look again.

The decisions are made by `groups`, `offsets` and `positions`; this shell finds the group of a request, runs the effects
of its machine, and owns the one timer of all deadlines. Requests that must wait are futures inside the machines:
nothing polls and no request gets a task of its own. A partition of `__consumer_offsets` is loaded when its leadership
comes and everything of it is closed when it goes: whoever waits hears NOT_COORDINATOR and looks for the new one.

Invariant: a commit is answered, and seen by others, only after all in-sync replicas have its record; the same holds for
the assignment of a generation. Source: kafka.coordinator.group.GroupCoordinator and GroupMetadataManager.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, assert_never

from broker.coordinators import answers, positions
from broker.coordinators.deadlines import Deadlines
from broker.coordinators.events import (
    Answer,
    Close,
    Disturbed,
    Effect,
    Event,
    Heartbeat,
    Join,
    Leave,
    Persist,
    Persisted,
    Sync,
    Tick,
)
from broker.coordinators.groups import EMPTY, Group, GroupLimits
from broker.coordinators.journal import COMMIT_ERRORS, GROUP_ERRORS, Journal
from broker.coordinators.offsets import CommittedOffset, Offsets, TopicPartition
from broker.coordinators.shards import Replay, Shard, Slot
from protocol.apis.consumer_group_position import ConsumerGroupPositionRequest, ConsumerGroupPositionResponse
from protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from protocol.apis.offset_commit import OffsetCommitRequest
from protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.errors import ErrorCode, KafkaError
from protocol.hashing import partition_of_group
from protocol.internal_topics import (
    CONSUMER_OFFSETS_TOPIC,
    GroupMetadataKey,
    OffsetCommitKey,
    encode_group,
    encode_key,
    encode_offset,
)
from protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from broker.config import BrokerSettings
    from broker.metadata_cache import ClusterImage, MetadataCache
    from broker.replication.replica_manager import ReplicaManager

log: Final = logging.getLogger(__name__)

RETENTION: Final = None
"""The key of the retention sweep among the deadlines; all others are slots."""


class GroupCoordinator:
    """All groups whose partition of `__consumer_offsets` this broker leads."""

    def __init__(
        self,
        settings: BrokerSettings,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        *,
        clock_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._clock_ms = clock_ms
        self._rng = rng
        self._limits = GroupLimits(
            session_timeout_ms_min=settings.group_min_session_timeout_ms,
            session_timeout_ms_max=settings.group_max_session_timeout_ms,
            size_max=settings.group_max_size,
            initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        )
        self._journal = Journal(replicas, timeout_ms=settings.offsets_commit_timeout_ms, clock_ms=clock_ms)
        self._shards: dict[int, Shard] = {}
        self._slots: dict[str, Slot] = {}
        """Every group of every loaded shard."""
        self._deadlines: Deadlines[Slot | None] = Deadlines()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False
        self._deadlines.set(RETENTION, clock_ms() + settings.offsets_retention_check_interval_ms)
        replicas.on_leader(self.on_leader)
        replicas.on_resign(self.on_resign)
        metadata.on_change(self.on_metadata)

    async def stop(self) -> None:
        """Send everybody who waits away, and coordinate nothing any more."""
        self._stopped = True
        for partition in list(self._shards):
            self._unload(partition, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- leadership ----------------------------------------------------------------------------------------------

    def on_leader(self, topic: str, partition: int, leader_epoch: int) -> None:
        """We lead a partition now; if that is news, load it. A mere new epoch changes nothing that is in memory."""
        if topic == CONSUMER_OFFSETS_TOPIC and partition not in self._shards and not self._stopped:
            shard = self._shards[partition] = Shard(partition)
            self._spawn(self._load(shard))

    def on_resign(self, topic: str, partition: int) -> None:
        """We lead a partition no longer."""
        if topic == CONSUMER_OFFSETS_TOPIC:
            self._unload(partition, ErrorCode.NOT_COORDINATOR)

    async def _load(self, shard: Shard) -> None:
        replay = Replay()
        try:
            offset = self._journal.first_offset(shard.partition)
            while True:
                entries, following = self._journal.read(shard.partition, offset)
                for entry in entries:
                    replay.apply(entry)
                if following == offset:
                    break
                offset = following
                await asyncio.sleep(0)  # a long journal must not keep everybody else from being served
        except KafkaError as error:
            log.info("loading %s-%d was abandoned: %s", CONSUMER_OFFSETS_TOPIC, shard.partition, error)
            if self._shards.get(shard.partition) is shard:
                del self._shards[shard.partition]
            return
        if self._shards.get(shard.partition) is not shard:
            return  # leadership went away meanwhile
        shard.slots = replay.slots(shard.partition, self._limits, self._rng, self._clock_ms())
        shard.loading = False
        self._slots.update(shard.slots)
        for slot in shard.slots.values():
            log.info("loaded %s, %d offsets", slot.group.describe(), len(slot.offsets.committed))
            self._deadlines.set(slot, slot.next_deadline())
        self._set_timer()

    def _unload(self, partition: int, error: ErrorCode) -> None:
        shard = self._shards.pop(partition, None)
        if shard is not None:
            for slot in list(shard.slots.values()):
                self._forget(shard, slot)
                self._apply(slot, Close(error))

    def _forget(self, shard: Shard, slot: Slot) -> None:
        group_id = slot.group.group_id
        if self._slots.get(group_id) is slot:
            del self._slots[group_id]
            del shard.slots[group_id]
        self._deadlines.forget(slot)

    # --- finding a group -----------------------------------------------------------------------------------------

    def _shard_of(self, group_id: str) -> Shard:
        """The shard of a group. Raises NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE."""
        if self._stopped:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator is shutting down")
        topic = self._metadata.topic(CONSUMER_OFFSETS_TOPIC)
        count = self._settings.offsets_topic_num_partitions if topic is None else len(topic.partitions)
        shard = self._shards.get(partition_of_group(group_id, count))
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{group_id!r} is not coordinated here")
        if shard.loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{group_id!r} is still being loaded")
        return shard

    def _find(self, group_id: str) -> Slot | None:
        """A group of ours, None if nobody has heard of it. Raises like `_shard_of`."""
        slot = self._slots.get(group_id)
        return self._shard_of(group_id).slots.get(group_id) if slot is None else slot

    def _find_or_create(self, group_id: str) -> Slot:
        slot = self._find(group_id)
        if slot is None:
            shard = self._shard_of(group_id)
            slot = Slot(Group(group_id, self._limits, self._rng), shard.partition)
            self._slots[group_id] = shard.slots[group_id] = slot
        return slot

    # --- membership ----------------------------------------------------------------------------------------------

    async def join(
        self, request: JoinGroupRequest, *, version: int, client_id: str, client_host: str
    ) -> JoinGroupResponse:
        """Become a member; answered when the join phase ends."""
        event = Join(
            ticket=self._ticket(), request=request, version=version, client_id=client_id, client_host=client_host
        )
        response: JoinGroupResponse = await self._submit(request.group_id, event, create=request.member_id == "")
        return response

    async def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """Bring or fetch the assignment; answered when the leader's is stored."""
        event = Sync(ticket=self._ticket(), request=request)
        response: SyncGroupResponse = await self._submit(request.group_id, event)
        if response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return answers.sync_refusal(ErrorCode.REBALANCE_IN_PROGRESS)  # makes the member rejoin
        return response

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Stay a member."""
        event = Heartbeat(ticket=self._ticket(), request=request)
        response: HeartbeatResponse = await self._submit(request.group_id, event)
        if response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return answers.heartbeat(ErrorCode.NONE)  # its session starts anew when the load is done
        return response

    async def leave(self, request: LeaveGroupRequest, *, version: int) -> LeaveGroupResponse:
        """Stop being a member."""
        event = Leave(ticket=self._ticket(), request=request, version=version)
        response: LeaveGroupResponse = await self._submit(request.group_id, event)
        return response

    def _ticket(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    async def _submit(self, group_id: str, event: Join | Sync | Heartbeat | Leave, *, create: bool = False) -> Any:
        try:
            if group_id == "":
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            slot = self._find_or_create(group_id) if create else self._find(group_id)
            if slot is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
        except KafkaError as error:
            return answers.refusal(event, error.code).response
        self._apply(slot, event)
        return await event.ticket

    def _apply(self, slot: Slot, event: Event) -> None:
        """Let the machine react and run its effects."""
        before = slot.group.state
        for effect in slot.group.apply(event, self._clock_ms()):
            self._run(slot, effect)
        if slot.group.state is not before:
            log.debug("%s", slot.group.describe())
        if not isinstance(event, Heartbeat | Close):  # heartbeats only move deadlines later
            self._look_again(slot)

    def _run(self, slot: Slot, effect: Effect) -> None:
        match effect:
            case Answer():
                _answer(effect)
            case Persist():
                self._spawn(self._persist(slot, effect))
            case Disturbed(error=error):
                for answer in slot.positions.interrupt(error):
                    _answer(answer)
            case _:
                assert_never(effect)

    async def _persist(self, slot: Slot, effect: Persist) -> None:
        key = encode_key(GroupMetadataKey(group=slot.group.group_id))
        error = ErrorCode.NONE
        try:
            await self._write(slot, [(key, encode_group(effect.value))], GROUP_ERRORS)
        except KafkaError as refused:
            log.warning("%s could not be stored: %s", slot.group.describe(), refused)
            error = refused.code
        self._apply(slot, Persisted(generation=effect.generation, error=error, answer=effect.answer))

    async def _write(
        self, slot: Slot, records: list[tuple[bytes, bytes | None]], errors: Mapping[ErrorCode, ErrorCode]
    ) -> int:
        slot.writes_in_flight += 1
        try:
            return await self._journal.append(slot.partition, records, errors)
        finally:
            slot.writes_in_flight -= 1

    # --- time ----------------------------------------------------------------------------------------------------

    def _look_again(self, slot: Slot) -> None:
        """After something happened to a slot: watch its next deadline, or forget it if there is nothing to it."""
        if self._slots.get(slot.group.group_id) is not slot:
            return
        if slot.vacant:
            self._forget(self._shards[slot.partition], slot)
            return
        self._deadlines.set(slot, slot.next_deadline())
        self._set_timer()

    def _set_timer(self) -> None:
        due_ms = self._deadlines.first()
        if due_ms is None or self._stopped or (self._timer is not None and self._timer_due_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        delay_ms = max(due_ms - self._clock_ms(), 0) + 1  # the clock counts whole milliseconds: never wake too early
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._wake)

    def _wake(self) -> None:
        self._timer = None
        now_ms = self._clock_ms()
        for slot in self._deadlines.pop_due(now_ms):
            if slot is RETENTION:
                self._deadlines.set(RETENTION, now_ms + self._settings.offsets_retention_check_interval_ms)
                self._spawn(self._expire_offsets())
                continue
            for answer in slot.positions.expire(slot.offsets.offset_of, now_ms):
                _answer(answer)
            self._apply(slot, Tick())
        self._set_timer()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            task.get_loop().call_exception_handler({"message": "the group coordinator has a bug", "exception": bug})

    # --- offsets -------------------------------------------------------------------------------------------------

    async def commit(self, request: OffsetCommitRequest, values: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Store offsets in the name of a member, or of anybody while the group is Empty. Raises KafkaError."""
        generation = request.generation_id_or_member_epoch
        if generation < 0:
            slot = self._find_or_create(request.group_id)
        elif (found := self._find(request.group_id)) is not None:
            slot = found
        else:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"there is no group {request.group_id!r}")
        try:
            slot.group.authorize_commit(request.member_id, request.group_instance_id, generation, self._clock_ms())
            await self._commit(slot, values)
        finally:
            self._look_again(slot)

    async def _commit(self, slot: Slot, values: Mapping[TopicPartition, CommittedOffset]) -> None:
        if not values:
            return
        group_id = slot.group.group_id
        records: list[tuple[bytes, bytes | None]] = [
            (encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=index)), encode_offset(value.to_value()))
            for (topic, index), value in values.items()
        ]
        first_offset = await self._write(slot, records, COMMIT_ERRORS)
        for place, (partition, value) in enumerate(values.items(), first_offset):
            slot.offsets.commit(partition, dataclasses.replace(value, journal_offset=place))
        for answer in slot.positions.committed(values, slot.offsets.offset_of):
            _answer(answer)

    def offsets(self, group_id: str) -> Offsets:
        """What a group has committed; nothing for a group that nobody has heard of. Raises KafkaError."""
        slot = self._find(group_id)
        return Offsets() if slot is None else slot.offsets

    async def _delete_offsets(self, slot: Slot, partitions: Iterable[TopicPartition], *, group: bool = False) -> None:
        """Write tombstones, and one for the group itself if it goes too. Raises KafkaError."""
        group_id = slot.group.group_id
        doomed = list(partitions)
        keys = [encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=index)) for topic, index in doomed]
        if group:
            keys.append(encode_key(GroupMetadataKey(group=group_id)))
        if not keys:
            return
        first_offset = await self._write(slot, [(key, None) for key in keys], GROUP_ERRORS)
        for place, partition in enumerate(doomed, first_offset):
            slot.offsets.delete(partition, place)

    async def _expire_offsets(self) -> None:
        now_ms = self._clock_ms()
        retention_ms = self._settings.offsets_retention_minutes * 60_000
        for slot in list(self._slots.values()):
            group = slot.group
            idle = group.state is EMPTY and not group.members.pending
            since_ms = (group.state_since_ms if group.protocol_type else -1) if idle else None
            expired = slot.offsets.expired(now_ms, retention_ms, idle_since_ms=since_ms)
            leaves_nothing = idle and len(expired) == len(slot.offsets.committed) and not slot.offsets.staged
            if expired or (leaves_nothing and group.generation > 0):
                await self._delete_logged(slot, expired, group=leaves_nothing)

    async def _delete_logged(self, slot: Slot, partitions: Iterable[TopicPartition], *, group: bool = False) -> None:
        try:
            await self._delete_offsets(slot, partitions, group=group)
        except KafkaError as error:
            log.warning("offsets of %s stay for now: %s", slot.group.group_id, error)
            return
        if group and slot.group.state is EMPTY and not slot.offsets and not slot.writes_in_flight:
            self._close(slot, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def on_metadata(self, before: ClusterImage, after: ClusterImage) -> None:
        """Offsets in topics that were deleted mean nothing to a later topic of the same name."""
        gone = {
            name
            for name, topic in before.topics.items()
            if name not in after.topics or ZERO_UUID != topic.topic_id != after.topics[name].topic_id
        }
        if not gone:
            return
        for slot in list(self._slots.values()):
            if dead := [partition for partition in slot.offsets.committed if partition[0] in gone]:
                self._spawn(self._delete_logged(slot, dead))

    # --- progress ------------------------------------------------------------------------------------------------

    async def position(self, request: ConsumerGroupPositionRequest, *, version: int) -> ConsumerGroupPositionResponse:
        """Exchange positions (v0), or wait for committed offsets (v1)."""
        slot: Slot | None = None
        try:
            if request.group_id == "":
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            slot = self._find_or_create(request.group_id)
            slot.group.authorize_watch(request.member_id, request.generation_id)
        except KafkaError as error:
            if slot is not None:
                self._look_again(slot)
            return positions.refusal(error.code)
        if version == 0:
            slot.positions.forget(slot.positions.members() - slot.group.members.by_id.keys())
            return slot.positions.exchange(request)
        ticket = self._ticket()
        for answer in slot.positions.watch(ticket, request, slot.offsets.offset_of, self._clock_ms()):
            _answer(answer)
        self._look_again(slot)
        try:
            response: ConsumerGroupPositionResponse = await ticket
        finally:
            slot.positions.drop(ticket)
            self._look_again(slot)
        return response

    # --- administration ------------------------------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        """A group of ours, to look at. Raises KafkaError."""
        slot = self._find(group_id)
        return None if slot is None else slot.group

    def groups(self) -> list[Group]:
        """All groups of ours."""
        return [slot.group for slot in self._slots.values()]

    @property
    def loading(self) -> bool:
        """Whether `groups` may be incomplete."""
        return any(shard.loading for shard in self._shards.values())

    async def delete(self, group_id: str) -> None:
        """Forget an Empty group and its offsets. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        slot = self._find(group_id)
        if slot is None or slot.vacant:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, group_id)
        if slot.group.state is not EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, slot.group.describe())
        await self._delete_offsets(slot, list(slot.offsets.committed), group=True)
        if slot.group.state is EMPTY:
            self._close(slot, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _close(self, slot: Slot, error: ErrorCode) -> None:
        shard = self._shards.get(slot.partition)
        if shard is not None and shard.slots.get(slot.group.group_id) is slot:
            self._forget(shard, slot)
        self._apply(slot, Close(error))


def _answer(answer: Answer) -> None:
    if not answer.ticket.done():  # the client may have gone away
        answer.ticket.set_result(answer.response)
