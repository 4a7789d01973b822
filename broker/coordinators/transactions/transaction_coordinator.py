"""The transaction coordinator: handles producers' requests, writes the journal and sends markers.

`transaction_requests` and `transactional_id` decide; this class finds the id, writes the journal and starts the
markers. A transaction is decided when its Prepare record is replicated: every coordinator that loads the partition then
ends it in the same way, and the producer gets its response. Memory follows the journal, with one exception: a fenced
producer stays fenced even if its record could not be written.

A partition is loaded up to the log end, and used once that end is replicated: no broker or producer may learn of a
Prepare that could still be lost. Markers carry the partition's leader epoch as coordinator epoch, so that leaders
reject markers of a replaced coordinator.

Source: kafka.coordinator.transaction.TransactionCoordinator and TransactionStateManager; KIP-98, KIP-360, KIP-664.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from anabranch.broker.coordinators.runtime.coordinator_tasks import CoordinatorTasks, CoordinatorTimer
from anabranch.broker.coordinators.runtime.journal import Journal
from anabranch.broker.coordinators.runtime.leadership import Leadership
from anabranch.broker.coordinators.transactions import transaction_requests as requests
from anabranch.broker.coordinators.transactions.marker_sender import MarkerSender
from anabranch.broker.coordinators.transactions.transaction_journal import (
    TRANSACTION_ERRORS,
    TransactionShard,
    record_of,
)
from anabranch.broker.coordinators.transactions.transaction_markers import DecidedTransaction
from anabranch.broker.coordinators.transactions.transaction_requests import Producer
from anabranch.broker.coordinators.transactions.transactional_id import (
    NO_PRODUCER_ID,
    PREPARE_EPOCH_FENCE,
    PREPARED,
    VERSION_WITH_EPOCH_BUMP,
    TopicPartition,
    Transaction,
    Transition,
)
from anabranch.broker.profiles.profile import profile_for
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import TRANSACTION_STATE_TOPIC, decode_transaction_key, encode_transaction_key

if TYPE_CHECKING:
    from anabranch.broker.config.dynamic_config import DynamicConfig
    from anabranch.broker.membership.cluster_membership import ClusterMembership
    from anabranch.broker.membership.producer_ids import ProducerIds
    from anabranch.broker.metadata.metadata_cache import MetadataCache
    from anabranch.broker.replication.replica_manager import ReplicaManager

log: Final = logging.getLogger(__name__)

TOMBSTONES_PER_BATCH: Final = 256
TIMEOUTS: Final = "timeouts"
EXPIRY: Final = "expiry"


class TransactionCoordinator:
    """All transactional ids whose partition of `__transaction_state` this broker leads."""

    def __init__(
        self,
        config: DynamicConfig,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        producer_ids: ProducerIds,
        attachment: ClusterMembership,
        *,
        clock_ms: Callable[[], int],
        steady_ms: Callable[[], int],
        rng: random.Random,
        failpoint: Callable[[str], None] | None = None,
    ) -> None:
        """`failpoint` is called after every step of `failpoints.STEPS`.

        `clock_ms` is the time of day, `steady_ms` the time for deadlines.
        """
        self._config = config
        self._profile = profile_for(config.current.kafka_version)
        self._producer_ids = producer_ids
        self._clock_ms = clock_ms
        self._failpoint = failpoint
        self._background = CoordinatorTasks("the transaction coordinator")
        self._journal = Journal(
            replicas,
            timeout_ms=config.current.request_timeout_ms,
            clock_ms=clock_ms,
            topic=TRANSACTION_STATE_TOPIC,
            read_key=decode_transaction_key,
        )
        self._leadership: Leadership[TransactionShard] = Leadership(
            self._journal,
            self._background,
            partition_count=lambda: metadata.partition_count(TRANSACTION_STATE_TOPIC),
            open_shard=TransactionShard,
            on_loaded=self._on_loaded,
            on_closed=self._on_closed,
        )
        self._markers = MarkerSender(
            config,
            metadata,
            attachment,
            self._background,
            rng=rng,
            is_current=self._is_current,
            on_progress=self._on_progress,
        )
        self._alarm: CoordinatorTimer[str] = CoordinatorTimer(steady_ms, self._ring)
        replicas.on_leader(self._leadership.on_leader)
        replicas.on_resign(self._leadership.on_resign)
        for partition in replicas.partitions():
            if partition.topic == TRANSACTION_STATE_TOPIC and partition.is_leader:
                self._leadership.on_leader(partition.topic, partition.index, partition.leader_epoch)
        now_ms = steady_ms()
        for key in (TIMEOUTS, EXPIRY):
            self._alarm.set(key, now_ms + self._interval_ms(key))
        self._alarm.start()

    async def stop(self) -> None:
        """Stop coordinating; the next coordinator ends the decided transactions."""
        self._alarm.stop()
        self._leadership.stop()
        await self._background.stop()
        await self._markers.close()

    # --- producers' requests -------------------------------------------------------------------------------------

    async def init_producer_id(self, transactional_id: str, timeout_ms: int, expected: Producer | None) -> Producer:
        """Return the identity of a producer that starts or recovers, and fence the previous producer of the id.

        Raises KafkaError: CONCURRENT_TRANSACTIONS while the previous producer's transaction is being aborted.
        """
        if transactional_id == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id is null or has at least one character")
        if not 0 < timeout_ms <= self._config.current.transaction_max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"{timeout_ms} ms")
        shard = self._leadership.shard_of(transactional_id)
        transaction = shard.transactions.get(transactional_id)
        drawn: int | None = None
        if transaction is None or requests.wants_new_producer_id(transaction, expected):
            drawn = await self._producer_ids.draw()
            shard = self._leadership.shard_of(transactional_id)  # may have changed during the await
            transaction = shard.transactions.get(transactional_id)
            if transaction is None:
                transaction = shard.transactions[transactional_id] = Transaction(
                    transactional_id=transactional_id,
                    producer_id=drawn,
                    timeout_ms=timeout_ms,
                    last_update_ms=self._clock_ms(),
                )
        transition = requests.init_producer_id(
            transaction, expected, timeout_ms=timeout_ms, new_producer_id=drawn, now_ms=self._clock_ms()
        )
        if transition.state is PREPARE_EPOCH_FENCE:
            await self._abort_fenced(shard, transaction, transition)
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction of the last producer is being aborted")
        await self._write(shard, transaction, transition)
        self._reached("txn:after-init")
        producer = Producer(transition.producer_id, transition.producer_epoch)
        log.info("%s: %s", transactional_id, producer)
        return producer

    async def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition], client_version: int = 0
    ) -> None:
        """Add partitions to the producer's transaction; the first ones start it. Raises KafkaError."""
        shard, transaction = self._find(transactional_id)
        transition = requests.add_partitions(
            transaction,
            producer,
            partitions,
            client_version=client_version,
            pending_first=self._profile.tests_pending_first,
            now_ms=self._clock_ms(),
        )
        if transition is not None:
            await self._write(shard, transaction, transition)
            self._reached("txn:after-add")

    def members(self, transactional_id: str, producer: Producer) -> frozenset[TopicPartition]:
        """Return the partitions of a producer's transaction, for brokers that verify (KIP-890). Raises KafkaError."""
        _, transaction = self._find(transactional_id)
        requests.check_member(transaction, producer)
        return frozenset(transaction.partitions)

    async def end(
        self, transactional_id: str, producer: Producer, *, commit: bool, client_version: int = 0
    ) -> Producer:
        """Commit or abort a transaction; return when that is decided and its markers are queued. Raises KafkaError.

        Returns the producer's identity for its next transaction.
        """
        shard, transaction = self._find(transactional_id)
        drawn = NO_PRODUCER_ID
        if requests.wants_next_producer_id(transaction, producer, client_version):
            drawn = await self._producer_ids.draw()
            shard, transaction = self._find(transactional_id)  # may have changed during the await
            if not requests.wants_next_producer_id(transaction, producer, client_version):
                drawn = NO_PRODUCER_ID
        transition = requests.end(
            transaction,
            producer,
            commit=commit,
            client_version=client_version,
            next_producer_id=drawn,
            now_ms=self._clock_ms(),
        )
        if transition is None:
            return Producer(transaction.producer_id, transaction.producer_epoch)
        await self._decide(shard, transaction, transition)
        if drawn != NO_PRODUCER_ID:
            return Producer(drawn, 0)
        return Producer(transition.producer_id, transition.producer_epoch)

    async def _abort_fenced(self, shard: TransactionShard, transaction: Transaction, fence: Transition) -> None:
        """Abort the fenced producer's transaction; its epoch stays fenced even if the abort cannot be written.

        As in Kafka the abort has the cluster's transaction version, not the producer's.
        """
        producer = Producer(fence.producer_id, fence.producer_epoch)
        version = self._profile.finalized_features.get("transaction.version", 0)
        transition = requests.end(
            transaction, producer, commit=False, client_version=version, from_client=False, now_ms=self._clock_ms()
        )
        assert transition is not None, "only an Ongoing transaction is fenced"
        try:
            await self._decide(shard, transaction, transition)
        except KafkaError as error:
            if self._is_current(shard) and version < VERSION_WITH_EPOCH_BUMP:
                log.warning("%s: epoch %d is fenced in memory only: %s", transaction, producer.epoch, error)
                transaction.fence_failed = True
            raise

    async def _decide(self, shard: TransactionShard, transaction: Transaction, transition: Transition) -> None:
        await self._write(shard, transaction, transition)
        self._reached("txn:after-prepare")
        self._send_markers(shard, transaction)

    def _find(self, transactional_id: str) -> tuple[TransactionShard, Transaction]:
        if transactional_id == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id has at least one character")
        shard = self._leadership.shard_of(transactional_id)
        transaction = shard.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{transactional_id!r} is not known")
        return shard, transaction

    # --- the journal ---------------------------------------------------------------------------------------------

    async def _write(self, shard: TransactionShard, transaction: Transaction, transition: Transition) -> None:
        """Write a transition to the journal and complete it. Raises KafkaError; then nothing has changed."""
        try:
            await self._append(shard, transaction, transition)
        except KafkaError as error:
            log.info("%s cannot become %s: %s", transaction.transactional_id, transition.state.title, error)
            transaction.abandon_transition(transition)
            raise

    async def _append(self, shard: TransactionShard, transaction: Transaction, transition: Transition) -> None:
        record = record_of(transaction.transactional_id, transition)
        await self._journal.append(shard.partition, [record], TRANSACTION_ERRORS, timeout_ms=transition.timeout_ms)
        if not self._is_current(shard):
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "leadership changed during the request")
        transaction.complete(transition, clears_start=self._profile.clears_start_of_transaction)
        log.debug("%s", transaction)

    def _is_current(self, shard: TransactionShard) -> bool:
        return self._leadership.shards.get(shard.partition) is shard

    def _on_loaded(self, shard: TransactionShard) -> None:
        log.info("loaded %d transactional ids of partition %d", len(shard.transactions), shard.partition)
        for transaction in shard.transactions.values():
            if transaction.state in PREPARED:
                log.info("finishing %s", transaction)
                self._send_markers(shard, transaction)

    def _on_closed(self, shard: TransactionShard, _: ErrorCode) -> None:
        self._markers.forget(shard)

    # --- markers -------------------------------------------------------------------------------------------------

    def _send_markers(self, shard: TransactionShard, transaction: Transaction) -> None:
        completion = transaction.prepare_complete(now_ms=self._clock_ms())
        self._markers.send(DecidedTransaction(shard, transaction, completion))

    def _on_progress(self, decided: DecidedTransaction) -> None:
        if not decided.done:
            self._reached("txn:after-some-markers")
            return
        self._reached("txn:after-markers")
        self._background.spawn(self._complete(decided))

    async def _complete(self, decided: DecidedTransaction) -> None:
        """Write the Complete record; retry until it is written or another broker coordinates the transaction."""
        shard, transaction = decided.shard, decided.transaction
        failures = 0
        while self._is_current(shard):
            try:
                await self._append(shard, transaction, decided.completion)
            except KafkaError as error:
                if not failures:
                    state = decided.completion.state.title
                    log.info("%s is not %s yet: %s", transaction.transactional_id, state, error)
                failures += 1
                await self._markers.pause(failures)
            else:
                self._reached("txn:after-complete")
                return

    def _reached(self, step: str) -> None:
        if self._failpoint is not None:
            self._failpoint(step)

    # --- timeouts and expiry -------------------------------------------------------------------------------------

    def _interval_ms(self, key: str) -> int:
        settings = self._config.current
        if key == TIMEOUTS:
            return settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        return settings.transaction_remove_expired_transaction_cleanup_interval_ms

    def _ring(self, key: str, now_ms: int) -> None:
        self._alarm.set(key, now_ms + self._interval_ms(key))
        if key == TIMEOUTS:
            self._abort_timed_out(self._clock_ms())
        else:
            self._background.spawn(self._remove_expired(self._clock_ms()))

    def _abort_timed_out(self, now_ms: int) -> None:
        for shard in self._loaded_shards():
            for transaction in shard.transactions.values():
                if requests.has_timed_out(transaction, now_ms):
                    self._background.spawn(self._abort_late(shard, transaction, now_ms))

    async def _abort_late(self, shard: TransactionShard, transaction: Transaction, now_ms: int) -> None:
        if not self._is_current(shard) or not requests.has_timed_out(transaction, now_ms):
            return
        log.info("%s: aborting after %d ms", transaction.transactional_id, transaction.timeout_ms)
        try:
            await self._abort_fenced(shard, transaction, transaction.prepare_fence())
        except KafkaError as error:
            log.info("%s: not aborted yet: %s", transaction.transactional_id, error)

    async def _remove_expired(self, now_ms: int) -> None:
        """Delete the ids that no producer has used for `transactional.id.expiration.ms`."""
        latest_ms = now_ms - self._config.current.transactional_id_expiration_ms
        for shard in self._loaded_shards():
            expired = [one for one in shard.transactions.values() if requests.has_expired(one, latest_ms)]
            for start in range(0, len(expired), TOMBSTONES_PER_BATCH):
                # A producer may have begun to use an id during the writes before.
                batch = [
                    one for one in expired[start : start + TOMBSTONES_PER_BATCH] if requests.has_expired(one, latest_ms)
                ]
                if batch and self._is_current(shard):
                    await self._remove(shard, batch)

    async def _remove(self, shard: TransactionShard, expired: list[Transaction]) -> None:
        moves = [(one, one.prepare_dead()) for one in expired]
        tombstones = [(encode_transaction_key(one.transactional_id), None) for one in expired]
        try:
            await self._journal.append(shard.partition, tombstones, TRANSACTION_ERRORS)
        except KafkaError as error:
            log.info("cannot remove %d expired transactional ids yet: %s", len(expired), error)
            for transaction, transition in moves:
                transaction.abandon_transition(transition)
            return
        for transaction in expired:
            shard.transactions.pop(transaction.transactional_id, None)

    # --- administration ------------------------------------------------------------------------------------------

    @property
    def loading(self) -> bool:
        """Whether `transactions` may be incomplete."""
        return self._leadership.loading

    def transaction(self, transactional_id: str) -> Transaction | None:
        """Return the state of a transactional id. Raises KafkaError."""
        return self._leadership.shard_of(transactional_id).transactions.get(transactional_id)

    def transactions(self) -> list[Transaction]:
        """Return the transactional ids that this broker coordinates."""
        return [one for shard in self._loaded_shards() for one in shard.transactions.values()]

    def _loaded_shards(self) -> list[TransactionShard]:
        return [shard for shard in self._leadership.shards.values() if not shard.loading]
