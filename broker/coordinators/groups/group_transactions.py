"""Offsets that producers commit in transactions: staged when written, committed or dropped by the transaction's marker.

The records are in the group's partition of `__consumer_offsets` as part of the transaction; its coordinator ends them
there as in any partition. Offsets are staged from the append on: a commit whose replication times out returns an error
and stays staged, as after a replay; the transaction decides. Until then readers that require stable offsets wait
(KIP-447), and no gate opens: a staged offset is no commit.

Source: kafka.coordinator.group.GroupCoordinator (handleTxnCommitOffsets), GroupMetadataManager (handleTxnCompletion).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from anabranch.broker.coordinators.classic_groups.group_events import Commit
from anabranch.broker.coordinators.groups.group_offsets import encode
from anabranch.broker.coordinators.offsets.committed_offsets import CommittedOffset, TopicPartition
from anabranch.broker.coordinators.runtime.journal import COMMIT_ERRORS, Records, TransactionPart
from anabranch.broker.replication.transaction_verification import Transaction
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.coordinators.groups.group_runtime import GroupRuntime
    from anabranch.broker.coordinators.groups.group_shards import GroupEntry
    from anabranch.broker.replication.replica_manager import ReplicaManager
    from anabranch.broker.storage.producer_state import Verification
    from anabranch.broker.tasks.yield_budget import YieldBudget
    from anabranch.protocol.apis.txn_offset_commit import TxnOffsetCommitRequest

NO_SEQUENCE: Final = -1
VERIFICATION_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    **COMMIT_ERRORS,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""The client's error if the transaction coordinator did not confirm; the client retries at this coordinator."""


@value
class PreparedCommit:
    """Offsets to stage, encoded, for a transaction that its coordinator has verified."""

    values: Mapping[TopicPartition, CommittedOffset]
    records: Records
    verification: Verification | None


class GroupTransactions:
    """Stage transactional offset commits of groups, and settle them at the end of the transaction."""

    def __init__(self, runtime: GroupRuntime, replicas: ReplicaManager) -> None:
        self._runtime = runtime
        self._replicas = replicas

    async def prepare(
        self,
        request: TxnOffsetCommitRequest,
        values: Mapping[TopicPartition, CommittedOffset],
        turns: YieldBudget,
        *,
        abortable: bool,
        adds: bool,
    ) -> PreparedCommit:
        """Encode offsets, and let the transaction's coordinator verify it. Raises KafkaError.

        Both may take a while: check afterwards what the offsets depend on.
        """
        if request.group_id == "":
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        partition = self._runtime.table.leadership.shard_of(request.group_id).partition
        producer = (request.producer_id, request.producer_epoch)
        records = await encode(self._runtime.journal, request.group_id, values, turns, producer)
        return PreparedCommit(values, records, await self._verify(request, partition, abortable, adds))

    async def commit(self, request: TxnOffsetCommitRequest, prepared: PreparedCommit) -> None:
        """Stage offsets for a transaction. Raises KafkaError."""
        values = prepared.values
        slot = self._runtime.table.find_or_create(request.group_id)
        try:
            sender = Commit(
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                generation=request.generation_id,
                transactional=True,
                partitions=values.keys(),
            )
            slot.authorize(sender, self._runtime.clock_ms())
            if values:
                await self._stage(slot, request, prepared)
        finally:
            self._runtime.reschedule(slot)

    async def _verify(
        self, request: TxnOffsetCommitRequest, index: int, abortable: bool, adds: bool
    ) -> Verification | None:
        transaction = Transaction(
            request.transactional_id, request.producer_id, request.producer_epoch, abortable, adds
        )
        try:
            partition = self._replicas.leader_of(CONSUMER_OFFSETS_TOPIC, index)
            verified = await self._replicas.verifier.verify(transaction, [(partition, NO_SEQUENCE)])
            verified.check(CONSUMER_OFFSETS_TOPIC, index)
        except KafkaError as error:
            raise KafkaError(VERIFICATION_ERRORS.get(error.code, error.code), error.message) from error
        return verified.verifications.get(partition)

    async def _stage(
        self,
        slot: GroupEntry,
        request: TxnOffsetCommitRequest,
        prepared: PreparedCommit,
    ) -> None:
        def on_appended(first_offset: int) -> None:
            slot.offsets.stage_all(request.producer_id, prepared.values, first_offset)

        part = TransactionPart((request.producer_id, request.producer_epoch), prepared.verification, on_appended)
        await slot.write(self._runtime.journal, prepared.records, COMMIT_ERRORS, part)

    def on_marker(self, partition: int, producer_id: int, offset: int, *, commit: bool) -> None:
        """Settle a transaction whose marker at `offset` all in-sync replicas of a `__consumer_offsets` partition have.

        A repeated marker may come late, when the producer's next transaction is open. A loading partition is skipped:
        its load reads the journal to the end and finds the marker.
        """
        shard = self._runtime.table.leadership.shards.get(partition)
        if shard is None or shard.loading:
            return
        for slot in [one for one in shard.slots.values() if producer_id in one.offsets.staged]:
            changed = slot.offsets.settle(producer_id, commit=commit, marker_offset=offset)
            self._runtime.on_offsets_committed(slot, changed)
            self._runtime.reschedule(slot)
