"""All replicas of this broker: becomes leader or follower, appends, and records the fetches of followers.

`partition` decides on roles, ISR and high watermark, `purgatory` on waiting requests; here they meet the logs, the
fetchers, the controller and the clock. All of this is synchronous, so a LeaderAndIsr cannot interleave with the checks
of rule R5 (duplicate, generation, append), and no lock is needed.

`replica_maintenance` runs beside the requests: ISR shrinks, high watermark checkpoints, log retention. Source: Kafka's
`ReplicaManager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from anabranch.broker.replication import lost_data_check
from anabranch.broker.replication.fetchers import Fetchers
from anabranch.broker.replication.hosted_partitions import HostedPartitions
from anabranch.broker.replication.isr_changes import AskController, IsrChanges
from anabranch.broker.replication.lagging_replicas import LaggingReplicas
from anabranch.broker.replication.legacy_producers import LegacyProducers
from anabranch.broker.replication.log_moves import LogMoves
from anabranch.broker.replication.partition import Partition, ReplicaRules, Role
from anabranch.broker.replication.purgatory import Purgatory
from anabranch.broker.replication.record_validator import RecordValidator
from anabranch.broker.replication.replica_maintenance import ReplicaMaintenance
from anabranch.broker.replication.topics_with_generations import TopicsWithGenerations
from anabranch.broker.replication.transaction_verification import TransactionVerifier
from anabranch.broker.storage.log_append import AppendInfo, append_as_leader, find_duplicate
from anabranch.broker.storage.log_manager import LogManager
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings, TopicConfig
    from anabranch.broker.metadata.metadata_cache import MetadataCache
    from anabranch.broker.replication.legacy_producers import KeyPlacementCheck
    from anabranch.broker.storage.files import Files
    from anabranch.broker.storage.inspection import InspectedRecords
    from anabranch.broker.storage.producer_state import Verification
    from anabranch.broker.storage.validation import Origin
    from anabranch.broker.tasks.supervised_task import OnFailure
    from anabranch.protocol.apis.leader_and_isr import LeaderAndIsrPartitionState
    from anabranch.protocol.records.batch import Buffer

log = logging.getLogger(__name__)

ALL_REPLICAS: Final = -1
LeaderListener = Callable[[str, int, int], None]
ResignListener = Callable[[str, int], None]


class ReplicaManager:
    """The partitions that this broker hosts."""

    def __init__(
        self,
        settings: BrokerSettings,
        files: Files | Mapping[str, Files],
        *,
        metadata: MetadataCache,
        topic_config: Callable[[str], TopicConfig],
        alter_partition: AskController,
        broker_epoch: Callable[[], int],
        clock_ms: Callable[[], int],
        died: OnFailure,
    ) -> None:
        self.settings = settings
        self.clock_ms = clock_ms
        self.logs = LogManager(files, settings, topic_config, clock_ms)
        self.moves = LogMoves(self.logs)
        self.verifier = TransactionVerifier(lambda: self.settings, metadata, clock_ms, died)
        self.inspector = RecordValidator(self.replica, clock_ms)
        self.rooms = Purgatory()
        self.produces = self.rooms.produces
        self.fetches = self.rooms.fetches
        self.deletions = self.rooms.deletions
        self._metadata = metadata
        self._topic_config = topic_config
        self._broker_epoch = broker_epoch
        self._rules = ReplicaRules(settings.node_id, settings.replica_lag_time_max_ms, self._broker_epoch_of)
        self._hosted = HostedPartitions()
        self._stragglers = LaggingReplicas()
        self._partitions = self._hosted.by_place
        self.fetchers = Fetchers(
            lambda: self.settings, metadata, broker_epoch=broker_epoch, progressed=self.fetches.check, died=died
        )
        self.isr_changes = IsrChanges(settings.node_id, broker_epoch, alter_partition, self._isr_settled, died)
        self.with_generations = TopicsWithGenerations(settings.node_id, broker_epoch, metadata, alter_partition, died)
        self.legacy = LegacyProducers(metadata, topic_config, self.with_generations)
        self.housekeeping = ReplicaMaintenance(
            lambda: self.settings,
            self._partitions,
            self.logs,
            self.moves,
            self.isr_changes,
            self._stragglers,
            broker_epoch=broker_epoch,
            clock_ms=clock_ms,
            died=died,
        )
        self.refused_batches: Counter[str] = Counter()
        """Topic -> client batches with another generation than their partition's."""
        self._on_leader: list[LeaderListener] = []
        self._on_confirmed: list[LeaderListener] = []
        self._on_resign: list[ResignListener] = []

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the checkpoints and start the periodic work; logs are opened when the controller names them."""
        self._loop = asyncio.get_running_loop()
        self.logs.load_checkpoints()
        self.isr_changes.start()
        self.with_generations.start()
        self.housekeeping.start()

    async def stop(self) -> None:
        """Finish waiting requests, stop fetching, write the checkpoints, close the logs."""
        await self.housekeeping.stop()
        await self.isr_changes.stop()
        await self.with_generations.stop()
        await self.verifier.close()
        await self.fetchers.close()
        self.inspector.close()
        self.rooms.close()
        try:
            self.housekeeping.checkpoint()
            self.logs.close()
        except OSError as error:
            log.error("the logs were not closed cleanly; the next start recovers them: %s", error)

    def on_leader(self, listener: LeaderListener) -> None:
        """Call `listener(topic, index, leader_epoch)` whenever this broker leads a partition under a new epoch."""
        self._on_leader.append(listener)

    def on_confirmed(self, listener: LeaderListener) -> None:
        """Call `listener(topic, index, leader_epoch)` when a controller names this broker's leadership again."""
        self._on_confirmed.append(listener)

    def on_resign(self, listener: ResignListener) -> None:
        """Call `listener(topic, index)` whenever this broker does not lead a partition, or no longer."""
        self._on_resign.append(listener)

    # -- finding ------------------------------------------------------------------------------------------------

    def replica(self, topic: str, index: int) -> Partition | None:
        """Return a replica on this broker, or None."""
        return self._partitions.get((topic, index))

    def partition(self, topic: str, index: int) -> Partition:
        """Return a replica on this broker. Raises NOT_LEADER_OR_FOLLOWER if it exists elsewhere in the cluster."""
        found = self._partitions.get((topic, index))
        if found is None:
            if self._metadata.partition(topic, index) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index} is unknown")
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} has no replica on this broker")
        return found

    def leader_of(self, topic: str, index: int) -> Partition:
        """Return a partition that this broker leads; raise NOT_LEADER_OR_FOLLOWER or UNKNOWN_TOPIC_OR_PARTITION."""
        found = self._partitions.get((topic, index))
        if found is None:
            found = self.partition(topic, index)
        if found.role is not Role.LEADER:
            found.check_leader()
        return found

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name for a topic id, from LeaderAndIsr or UpdateMetadata."""
        return self._hosted.name_of(topic_id) or self._metadata.topic_name(topic_id)

    def has_topic(self, topic: str, topic_id: bytes) -> bool:
        """Whether a partition of the topic with this name and id is on this broker."""
        return self._hosted.has_topic(topic, topic_id)

    def now_ms(self) -> float:
        """Return the event loop's time, which followers' lag is measured with."""
        return self._loop.time() * 1000

    def partitions(self) -> Iterable[Partition]:
        """Return all replicas on this broker."""
        return self._partitions.values()

    # -- appending ----------------------------------------------------------------------------------------------

    def append_local(
        self,
        partition: Partition,
        records: Buffer,
        *,
        acks: int,
        generation: int | None,
        origin: Origin = "client",
        verification: Verification | None = None,
        found: InspectedRecords | None = None,
        fit: KeyPlacementCheck | None = None,
    ) -> AppendInfo:
        """Append as the leader, in the order of rule R5; `generation` None (coordinators) is not compared.

        A duplicate gets its old offset even if its generation has ended: the producer's order depends on that offset.
        The first batch of a transaction needs the `verification` that the coordinator has confirmed. `found` is the
        `RecordValidator`'s result.
        """
        if partition.role is not Role.LEADER:
            partition.check_leader()
        if acks == ALL_REPLICAS:
            partition.check_min_isr()
        duplicate = find_duplicate(partition.log, records)
        if duplicate is not None:
            return duplicate
        if generation is not None:
            self.check_generation(partition, generation, fit)
        info = append_as_leader(
            partition.log,
            records,
            leader_epoch=partition.leader_epoch,
            now_ms=self.clock_ms(),
            origin=origin,
            verification=verification,
            verified_only=self.settings.transaction_partition_verification_enable,
            found=found,
        )
        if partition.advance_high_watermark(self._loop.time() * 1000):
            self.produces.check(partition)
        self.fetches.check(partition)
        return info

    def check_generation(self, partition: Partition, generation: int, fit: KeyPlacementCheck | None) -> None:
        """Raise unless a client may append a batch with this generation; -1 is none, and `fit` is the check of its
        keys.
        """
        if generation >= 0:
            partition.check_generation(generation)
        else:
            self.legacy.check(partition, fit)

    # -- followers ----------------------------------------------------------------------------------------------

    def record_follower_fetch(
        self, partition: Partition, replica: int, offset: int, *, log_start_offset: int, broker_epoch: int
    ) -> None:
        """Record a follower's fetch, which may advance the high watermark or expand the ISR."""
        registered = self._broker_epoch_of(replica)
        if registered is not None and -1 < broker_epoch < registered:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {replica} has registered again since epoch {broker_epoch}"
            )
        now = self._loop.time() * 1000
        partition.record_fetch(replica, offset, log_start_offset, broker_epoch, now)
        if len(self.deletions):
            self.deletions.check(partition)
        if partition.advance_high_watermark(now):
            self._high_watermark_moved(partition)
        if replica not in partition.isr:
            change = partition.propose_expand(replica, self._broker_epoch())
            if change is not None:
                self.isr_changes.submit(partition, change)

    # -- requests of the controller -----------------------------------------------------------------------------

    def apply_state(
        self, topic: str, topic_id: bytes, state: LeaderAndIsrPartitionState, *, has_generations: bool = False
    ) -> ErrorCode:
        """Apply one row of LeaderAndIsr: role, epochs, ISR, generation and seal change together, or not at all."""
        key = (topic, state.partition_index)
        partition = self._partitions.get(key)
        if partition is None:
            if self.settings.node_id not in state.replicas:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            try:
                partition = self._open(topic, state.partition_index, topic_id)
            except KafkaError as refused:
                return refused.code
            except OSError as error:
                log.error("cannot open the log of %s-%d: %s", topic, state.partition_index, error)
                return ErrorCode.KAFKA_STORAGE_ERROR
        verdict = partition.check_leader_and_isr(state, topic_id)
        answer = lost_data_check.check_lost_data(partition, state, self.settings.node_id, verdict)
        if verdict is not ErrorCode.NONE or (answer is not verdict and state.leader == self.settings.node_id):
            if partition.is_leader and (state.leader, state.leader_epoch) == (
                partition.leader_id,
                partition.leader_epoch,
            ):
                for listener in self._on_confirmed:
                    listener(topic, partition.index, partition.leader_epoch)
            return answer
        if key not in self._partitions:
            self._hosted.add(partition)
            self._stragglers.add(partition)
            self.housekeeping.changed.add(partition)
            self.moves.resume(partition)
        if has_generations:
            partition.note_generations()
        if partition.is_previous_incarnation(state):
            log.info("%r: restarting at %d", partition, state.log_start_offset)
            try:
                partition.start_over_at(state.log_start_offset)
            except OSError as error:
                log.error("cannot drop the former log of %r: %s", partition, error)
                return ErrorCode.KAFKA_STORAGE_ERROR
        if state.leader == self.settings.node_id:
            self._lead(partition, state)
        else:
            self._follow(partition, state)
        return answer

    def stop_replica(self, topic: str, index: int, leader_epoch: int, *, delete: bool) -> ErrorCode:
        """Apply one row of StopReplica; epoch -1 (not known) and -2 (topic deletion) always apply."""
        partition = self._partitions.get((topic, index))
        if partition is not None:
            if -1 < leader_epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            self._hosted.remove(partition)
            self._stragglers.remove(partition)
            self.housekeeping.remove(partition)
            self.moves.forget(partition)
            self.fetchers.forget(partition)
            partition.stop()
            self._role_changed(partition)
        try:
            if delete:
                self.logs.delete(topic, index)
        except KafkaError as refused:
            return refused.code
        except OSError as error:
            log.error("cannot delete the log of %s-%d: %s", topic, index, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def config_changed(self, topic: str) -> None:
        """Apply a topic's changed configuration to its partitions."""
        config = self._topic_config(topic)
        for partition in self._hosted.of_topic(topic):
            partition.require_in_sync(config.min_insync_replicas)
            self.logs.config_changed(topic, partition.index)
            self.produces.check(partition)

    def adopt(self, settings: BrokerSettings) -> None:
        """Apply this broker's changed settings. Topics get theirs by `config_changed`."""
        self.settings = settings
        self.logs.adopt(settings)

    def _open(self, topic: str, index: int, topic_id: bytes) -> Partition:
        config = self._topic_config(topic)
        return Partition(
            topic,
            index,
            topic_id,
            self.logs.open(topic, index, topic_id),
            self._rules,
            high_watermark=self.logs.high_watermark(topic, index),
            min_insync_replicas=config.min_insync_replicas,
        )

    def _lead(self, partition: Partition, state: LeaderAndIsrPartitionState) -> None:
        self.fetchers.forget(partition)
        partition.become_leader(state, self.now_ms())
        log.info("leading %r", partition)
        for listener in self._on_leader:
            listener(partition.topic, partition.index, partition.leader_epoch)
        self._high_watermark_moved(partition)

    def _follow(self, partition: Partition, state: LeaderAndIsrPartitionState) -> None:
        self.fetchers.forget(partition)
        partition.become_follower(state)
        log.info("following broker %d: %r", partition.leader_id, partition)
        self._role_changed(partition)
        if partition.log.durability.failure is None:
            self.fetchers.follow(partition)

    def _role_changed(self, partition: Partition) -> None:
        for listener in self._on_resign:
            listener(partition.topic, partition.index)
        self.deletions.check(partition)
        self._high_watermark_moved(partition)

    def _broker_epoch_of(self, broker_id: int) -> int | None:
        broker = self._metadata.broker(broker_id)
        return None if broker is None else broker.epoch

    def _isr_settled(self, partition: Partition) -> None:
        partition.advance_high_watermark(self.now_ms())
        self._high_watermark_moved(partition)

    def _high_watermark_moved(self, partition: Partition) -> None:
        self.produces.check(partition)
        self.fetches.check(partition)
