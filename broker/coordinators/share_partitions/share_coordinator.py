"""The share coordinator: stores the state of each group in each share partition (KIP-932).

A key hashes to a partition of `__share_group_state`, whose leader stores its state. A change is written before memory
follows, one at a time per key: a snapshot must contain everything written before it. A leader's request is never
applied after a later one of the same leader. Replaced partition leaders are fenced by leader epoch, and previous
incarnations of a group by state epoch.

Records below the oldest current snapshot are deleted. A snapshot with many records after it is rewritten: otherwise a
state that no longer changes, such as that of a merged partition, would keep all of them.

Source: Kafka's `ShareCoordinatorService`, `ShareCoordinatorShard`, `ShareCoordinatorOffsetsManager`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final

from anabranch.broker.coordinators.runtime.coordinator_tasks import CoordinatorTasks
from anabranch.broker.coordinators.runtime.journal import Journal, JournalRecord, TransactionEnd
from anabranch.broker.coordinators.runtime.leadership import Leadership
from anabranch.broker.coordinators.share_partitions.in_flight import StateBatch
from anabranch.broker.coordinators.share_partitions.share_state import (
    SNAPSHOT,
    UPDATE,
    ShareKey,
    ShareState,
    decode_key,
    encode_key,
    encode_snapshot,
    encode_update,
    restore,
)
from anabranch.broker.coordinators.transactions.transaction_journal import TRANSACTION_ERRORS
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import SHARE_STATE_TOPIC
from anabranch.protocol.values import slotted

if TYPE_CHECKING:
    from anabranch.broker.config.dynamic_config import DynamicConfig
    from anabranch.broker.metadata.metadata_cache import MetadataCache
    from anabranch.broker.replication.replica_manager import ReplicaManager

log: Final = logging.getLogger(__name__)
UNNUMBERED: Final = -1
"""The request has no number."""


def name_of(key: ShareKey) -> str:
    """Format the key for FindCoordinator: "group:topic id:partition"."""
    topic_id = base64.urlsafe_b64encode(key.topic_id).rstrip(b"=").decode()
    return f"{key.group}:{topic_id}:{key.partition}"


@slotted(eq=False)
class ShareShard:
    """One partition of `__share_group_state` that this broker leads."""

    partition: int
    leader_epoch: int
    loading: bool = True
    states: dict[ShareKey, ShareState] = field(default_factory=dict)
    snapshots: dict[ShareKey, int] = field(default_factory=dict)
    """The offset of each key's last snapshot."""
    turns: dict[ShareKey, asyncio.Lock] = field(default_factory=dict)
    latest: dict[ShareKey, tuple[int, int]] = field(default_factory=dict)
    """Key -> the leader epoch and number of the last request from its leader."""
    renewing: ShareKey | None = None
    """The key whose snapshot is being rewritten."""
    lost: set[bytes] = field(default_factory=set)
    """The ids of topics that were deleted during the load."""

    def follow(self, key: ShareKey, leader_epoch: int, number: int) -> None:
        """Record a leader's request. Raises FENCED_LEADER_EPOCH if it arrives after a later one."""
        if number == UNNUMBERED:
            return
        latest = self.latest.get(key, (UNNUMBERED, UNNUMBERED))
        if (leader_epoch, number) < latest:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"request {number} is older than {latest[1]} of {key}")
        self.latest[key] = leader_epoch, number

    def apply(self, entry: JournalRecord | TransactionEnd) -> None:
        """Apply the next entry of the journal while loading. Raises DecodeError."""
        if isinstance(entry, TransactionEnd):
            return
        key, kind = entry.key
        if entry.value is None:
            self.states.pop(key, None)
            self.snapshots.pop(key, None)
            return
        self.states[key] = restore(self.states.get(key), kind, entry.value)
        if kind == SNAPSHOT:
            self.snapshots[key] = entry.offset


class ShareCoordinator:
    """All states whose partition of `__share_group_state` this broker leads."""

    def __init__(
        self,
        config: DynamicConfig,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        *,
        clock_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._metadata = metadata
        self._clock_ms = clock_ms
        self.listeners: dict[Callable[[str], None], None] = {}
        """Called with the name of a group whenever its state in a partition changes."""
        self._background = CoordinatorTasks("the share coordinator")
        self._journal = Journal(
            replicas,
            timeout_ms=config.current.request_timeout_ms,
            clock_ms=clock_ms,
            topic=SHARE_STATE_TOPIC,
            read_key=decode_key,
        )
        self._leadership: Leadership[ShareShard] = Leadership(
            self._journal,
            self._background,
            partition_count=lambda: metadata.partition_count(SHARE_STATE_TOPIC),
            open_shard=ShareShard,
            on_loaded=self._on_loaded,
            on_closed=lambda _shard, _code: None,
        )
        metadata.on_gone(self._topics_gone)
        replicas.on_leader(self._leadership.on_leader)
        replicas.on_resign(self._leadership.on_resign)
        for partition in replicas.partitions():
            if partition.topic == SHARE_STATE_TOPIC and partition.is_leader:
                self._leadership.on_leader(partition.topic, partition.index, partition.leader_epoch)

    async def stop(self) -> None:
        """Stop coordinating."""
        self._leadership.stop()
        await self._background.stop()

    def shards(self) -> Iterable[ShareShard]:
        """Return the shards that this broker leads."""
        return self._leadership.shards.values()

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Start a new incarnation of a group in a partition. Raises FENCED_STATE_EPOCH and the journal's errors.

        A repeated request changes nothing: it may be late, and leaders may have stored changes since. (Kafka begins
        again.)
        """
        shard, before = self._find(key)
        async with self._turn(shard, key):
            before = shard.states.get(key)
            if before is not None:
                before.fence(leader_epoch=before.leader_epoch, state_epoch=state_epoch)
                if before.state_epoch == state_epoch:
                    return
            state = ShareState(
                state_epoch=state_epoch,
                start_offset=start_offset,
                snapshot_epoch=0 if before is None else before.snapshot_epoch + 1,
                created_ms=self._clock_ms(),
            )
            await self._snapshot(shard, key, state)

    async def read(self, key: ShareKey, leader_epoch: int, number: int = UNNUMBERED) -> ShareState:
        """Return the state to a partition leader, and fence the leaders before it.

        The leader's own requests with lower numbers are fenced, too. Raises FENCED_LEADER_EPOCH.
        """
        shard, state = self._find(key)
        async with self._turn(shard, key):
            state = shard.states.get(key)
            if state is None:
                return ShareState()
            state.fence(leader_epoch=leader_epoch)
            shard.latest.pop(key, None)  # a restarted leader begins its numbers again
            shard.follow(key, leader_epoch, number)
            if leader_epoch > state.leader_epoch:
                await self._update(
                    shard, key, state, state.start_offset, [], state.delivery_complete_count, leader_epoch
                )
            return state

    async def write(
        self,
        key: ShareKey,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        complete_count: int,
        number: int = UNNUMBERED,
    ) -> None:
        """Store state changes. Raises FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION."""
        shard, _ = self._find(key)
        async with self._turn(shard, key):
            state = shard.states.get(key)
            if state is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{key} was never initialized")
            state.fence(leader_epoch=leader_epoch, state_epoch=state_epoch)
            if state_epoch > state.state_epoch:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"state epoch {state_epoch} is newer than the current one")
            shard.follow(key, leader_epoch, number)
            await self._update(shard, key, state, start_offset, batches, complete_count, leader_epoch)

    async def delete(self, key: ShareKey) -> None:
        """Delete the state of a group in a partition, if there is one; the topic need not exist."""
        shard = self._leadership.shard_of(name_of(key))
        async with self._turn(shard, key):
            if key in shard.states:
                tombstones = [(encode_key(key, kind), None) for kind in (SNAPSHOT, UPDATE)]
                await self._journal.append(shard.partition, tombstones, TRANSACTION_ERRORS)
                self._check_current(shard)
                del shard.states[key]
                shard.snapshots.pop(key, None)
                shard.latest.pop(key, None)
                self._notify(key)
        shard.turns.pop(key, None)
        self._prune(shard)

    def summary(self, key: ShareKey) -> ShareState:
        """Return the state without fencing, for monitoring."""
        return self._find(key)[1] or ShareState()

    @contextlib.asynccontextmanager
    async def _turn(self, shard: ShareShard, key: ShareKey) -> AsyncIterator[None]:
        """Serialize the changes of a state; waiting ones fail when the leadership ends."""
        async with shard.turns.setdefault(key, asyncio.Lock()):
            self._check_current(shard)
            yield

    def _find(self, key: ShareKey) -> tuple[ShareShard, ShareState | None]:
        """Return the shard of a key, and its state if there is one.

        An existing state is returned even if its topic is not in the metadata: a broker that has just started knows no
        topics, and leaders would take the group for deleted. Raises NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        shard = self._leadership.shard_of(name_of(key))
        state = shard.states.get(key)
        if state is None and self._metadata.topic_name(key.topic_id) is None:
            if not self._metadata.image.complete:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "this broker has no metadata yet")
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "unknown topic id")
        return shard, state

    async def _update(
        self,
        shard: ShareShard,
        key: ShareKey,
        state: ShareState,
        start_offset: int,
        batches: Sequence[StateBatch],
        complete_count: int,
        leader_epoch: int,
    ) -> None:
        """Write an update or, when it is due, a snapshot, and apply it."""
        if state.updates >= self._config.current.share_coordinator_snapshot_update_records_per_snapshot:
            after = state.next_snapshot()
            after.take(start_offset, batches, complete_count, leader_epoch)
            await self._snapshot(shard, key, after)
            return
        record = encode_key(key, UPDATE), encode_update(state, start_offset, batches, complete_count, leader_epoch)
        await self._journal.append(shard.partition, [record], TRANSACTION_ERRORS)
        self._check_current(shard)
        state.take(start_offset, batches, complete_count, leader_epoch)
        state.updates += 1
        self._notify(key)

    async def _snapshot(self, shard: ShareShard, key: ShareKey, state: ShareState) -> None:
        record = encode_key(key, SNAPSHOT), encode_snapshot(state, self._clock_ms())
        # Nothing from here on may be deleted until the snapshot's offset is known.
        shard.snapshots.setdefault(key, self._replicas.leader_of(SHARE_STATE_TOPIC, shard.partition).log.log_end_offset)
        offset = await self._journal.append(shard.partition, [record], TRANSACTION_ERRORS)
        self._check_current(shard)
        shard.states[key] = state
        shard.snapshots[key] = offset
        self._notify(key)
        self._prune(shard)

    def _notify(self, key: ShareKey) -> None:
        for listener in self.listeners:
            listener(key.group)

    def _check_current(self, shard: ShareShard) -> None:
        if self._leadership.shards.get(shard.partition) is not shard:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "leadership changed during the request")

    def _prune(self, shard: ShareShard) -> None:
        """Delete the records that no state needs; followers delete them with their next fetch."""
        try:
            partition = self._replicas.leader_of(SHARE_STATE_TOPIC, shard.partition)
            oldest = min(shard.snapshots.values(), default=partition.high_watermark)
            if oldest > partition.log.log_start_offset:
                partition.delete_records_before(min(oldest, partition.high_watermark))
        except KafkaError as error:
            log.info("cannot prune %s-%d yet: %s", SHARE_STATE_TOPIC, shard.partition, error)
        else:
            self._renew_oldest(shard, partition.log.log_end_offset)

    def _renew_oldest(self, shard: ShareShard, end: int) -> None:
        """Rewrite the oldest snapshot if twice as many records follow it as all active states would leave."""
        written = {key: offset for key, offset in shard.snapshots.items() if key in shard.states}
        if not written or shard.renewing is not None:
            return
        key = min(written, key=written.__getitem__)
        per_state = self._config.current.share_coordinator_snapshot_update_records_per_snapshot + 1
        if end - written[key] > 2 * per_state * len(written):
            shard.renewing = key
            self._background.spawn(self._renew(shard, key))

    async def _renew(self, shard: ShareShard, key: ShareKey) -> None:
        try:
            async with self._turn(shard, key):
                state = shard.states.get(key)
                if state is not None:
                    await self._snapshot(shard, key, state.next_snapshot())
        except KafkaError as error:
            log.info("cannot write a snapshot of %s yet: %s", key, error)
        finally:
            shard.renewing = None

    def _on_loaded(self, shard: ShareShard) -> None:
        log.info("loaded %d shared partitions of partition %d", len(shard.states), shard.partition)
        self._forget_topics(shard, shard.lost)

    def _topics_gone(self, lost: Mapping[str, bytes]) -> None:
        """Delete the states of deleted topics. A topic that is only missing may not be in the metadata yet."""
        for shard in self.shards():
            if shard.loading:
                shard.lost.update(lost.values())
            else:
                self._forget_topics(shard, lost.values())

    def _forget_topics(self, shard: ShareShard, topic_ids: Collection[bytes]) -> None:
        for key in shard.states:
            if key.topic_id in topic_ids:
                self._background.spawn(self._forget(key))

    async def _forget(self, key: ShareKey) -> None:
        try:
            await self.delete(key)
        except KafkaError as error:
            log.info("%s: cannot remove the state of a deleted topic yet: %s", key, error)
