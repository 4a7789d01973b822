"""One replica of one partition on this broker: its role, fencing epochs, ISR and high watermark.

Decides whether a LeaderAndIsr is applied, who is in sync, when to propose a smaller or larger ISR, how far consumers
may read, and whether a client's leader epoch or generation is the present one. Does not decide how bytes are stored
(`storage.log`) or how the controller is reached (`isr_changes`): ISR changes are returned as values.

    follower --LeaderAndIsr names me, higher epoch--> leader --names another, higher epoch--> follower
    ISR: committed --propose--> pending --answer--> committed        (at most one pending; a new leader epoch drops it,
                                                                   and so does the removal of the replica)

Invariants: the leader epoch only grows; a leader's high watermark only grows; it never passes the log end of a member
of the *maximal* ISR (committed plus the replicas that are about to join); generation, its epoch and the seal change in
one step (R2).

Sources: Kafka's `Partition` and `Replica`; KIP-497 (AlterPartition), KIP-903 (broker epochs), KIP-966 (no advance under
min ISR); rules R1, R2, R5, R6 of the resize design.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from anabranch.broker.replication.follower import NEVER, NO_EPOCH, Follower
from anabranch.broker.replication.isr_change import IsrChange, Verdict, verdict_of
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.storage.log import PartitionLog
    from anabranch.protocol.apis.alter_partition import PartitionDataResult
    from anabranch.protocol.apis.leader_and_isr import LeaderAndIsrPartitionState

TO_HIGH_WATERMARK: Final = -1


class Role(enum.Enum):
    """The broker's role for the partition; NONE until the first LeaderAndIsr."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"


BrokerEpochOf = Callable[[int], int | None]
"""Returns a broker's registered epoch: None if it is not alive, -1 if alive with an unknown epoch."""


@dataclass(slots=True)
class ReplicaRules:
    """The limits that apply to a partition; several partitions may share one object."""

    broker_id: int
    lag_time_max_ms: int = 30000
    broker_epoch_of: BrokerEpochOf = field(default=lambda _: NO_EPOCH)


class Listener(Protocol):
    """Notified once of the next change of a partition."""

    def on_change(self) -> None:
        """Handle a change. The listener is removed before; for later changes it has to be added again."""


class Partition:
    """The replication state of one partition on this broker."""

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        log: PartitionLog,
        rules: ReplicaRules,
        *,
        high_watermark: int = 0,
        min_insync_replicas: int = 1,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.min_insync_replicas = min_insync_replicas
        self.has_generations = False
        """Whether the topic is known to hold batches with generations; never reset (R16)."""
        self.role = Role.NONE
        self.terms = 0
        """How often this broker has become the leader after another role."""
        self.leader_id = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.leader_epoch_start_offset = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.pending: IsrChange | None = None
        self.generation = 0
        self.first_generation = 0
        """The one with which this partition began: higher than 0 if its index was used before, and removed (R14)."""
        self.sealed = False
        self.retiring = False
        """Sealed and reported as empty to the controller: the controller removes it or gives it a new epoch."""
        self.followers: dict[int, Follower] = {}
        self.listeners: dict[Listener, None] = {}
        self._led_before = False
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self._rules = rules
        log.changed = self.notify_listeners

    def __repr__(self) -> str:
        return (
            f"<{self.topic}-{self.index} {self.role.value} of epoch {self.leader_epoch}.{self.partition_epoch} "
            f"isr {list(self.isr)} hw {self.high_watermark} end {self.log.log_end_offset} generation {self.generation}>"
        )

    # -- listeners ----------------------------------------------------------------------------------------------

    def notify_listeners(self) -> None:
        """Notify the listeners that responses about this partition may change.

        Covers role, leader epoch, high watermark, ISR and follower state, and the log's start, end and epochs. Called
        in the middle of a change: listeners only record it, and read later.
        """
        if self.listeners:
            listeners, self.listeners = self.listeners, {}
            for one in listeners:
                one.on_change()

    def move_to(self, log: PartitionLog) -> None:
        """Replace the log with its complete copy in another directory."""
        self.log = log
        log.changed = self.notify_listeners
        self.notify_listeners()

    # -- roles --------------------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self.role is Role.LEADER

    def check_leader_and_isr(self, state: LeaderAndIsrPartitionState, topic_id: bytes) -> ErrorCode:
        """Return NONE if a LeaderAndIsr row should be applied, or the reason not to; equal epochs are not applied
        again.
        """
        if any(topic_id) and any(self.topic_id) and topic_id != self.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if state.leader_epoch > self.leader_epoch:
            if self._rules.broker_id not in state.replicas:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return ErrorCode.NONE
        return ErrorCode.STALE_CONTROLLER_EPOCH

    def become_leader(self, state: LeaderAndIsrPartitionState, now_ms: float) -> None:
        """Lead from `state.leader_epoch` on. Followers in the ISR get the full lag time to prove themselves in sync."""
        known, me = self.followers, self._rules.broker_id
        continues = self.role is Role.LEADER
        # No other broker can have led in between, so no replica has another leader's records since.
        self._led_before = continues and state.leader_epoch == self.leader_epoch + 1 and self.has_all_earlier_records
        if not continues:
            self.terms += 1
        self._adopt(state, Role.LEADER)
        self.isr = tuple(state.isr)
        self.leader_epoch_start_offset = self.log.log_end_offset
        self.log.epochs.assign(self.leader_epoch, self.leader_epoch_start_offset)
        self.followers = {}
        for replica in self.replicas:
            if replica != me:
                # Only the broker epoch survives: an offset reported under an older leader epoch proves nothing.
                epoch = known[replica].broker_epoch if continues and replica in known else NO_EPOCH
                caught_up = now_ms if replica in self.isr else NEVER
                self.followers[replica] = Follower(caught_up_ms=caught_up, broker_epoch=epoch)
        self.advance_high_watermark(now_ms)

    def become_follower(self, state: LeaderAndIsrPartitionState) -> None:
        """Follow `state.leader` (-1: there is no leader; wait)."""
        self._adopt(state, Role.FOLLOWER)
        self.isr = ()
        self.followers = {}

    def stop(self) -> None:
        """Neither lead nor follow: the controller has removed this replica."""
        self.role = Role.NONE
        self.pending = None
        self.notify_listeners()

    def _adopt(self, state: LeaderAndIsrPartitionState, role: Role) -> None:
        assert state.leader_epoch > self.leader_epoch, f"{self}: leader epoch decreases to {state.leader_epoch}"
        self.role = role
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = tuple(state.replicas)
        self.pending = None
        # A controller without generations sends -1; such topics were never resized and have generation 0.
        self.generation = max(state.generation, 0)
        served = [start.generation for start in state.gen_start if start.leader_epoch >= state.first_leader_epoch]
        self.first_generation = min(served, default=0) if state.first_leader_epoch >= 0 else 0
        self.retiring = False
        self.sealed = state.marked_for_deletion
        self.notify_listeners()

    def is_previous_incarnation(self, state: LeaderAndIsrPartitionState) -> bool:
        """Return whether the log belongs to an earlier partition of this index, on a broker that was down at its
        removal (R14).

        It starts below the present partition's first offset, or with a record of an epoch before it. Such a record is
        an unreplicated tail of an earlier leader, at the offset where that partition ended and this one begins.
        """
        log = self.log
        first_epoch = log.epochs.epoch_for(log.log_start_offset) if log.log_end_offset > log.log_start_offset else -1
        return log.log_start_offset < state.log_start_offset or 0 <= first_epoch < state.first_leader_epoch

    def start_over_at(self, offset: int) -> None:
        """Drop the whole log and start again at an offset.

        Used if the log belongs to an earlier partition of this index (R14), or if the leader has deleted everything
        that this follower has, and more.
        """
        self.log.truncate_fully_and_start_at(offset)
        self.high_watermark = offset

    def truncate_to(self, offset: int) -> None:
        """Truncate a follower's log to an offset: the leader has other records, or none, from there on."""
        try:
            self.log.truncate_to(offset)
        finally:
            self.high_watermark = min(self.high_watermark, self.log.log_end_offset)

    @property
    def has_all_earlier_records(self) -> bool:
        """Return whether no ISR member can have records of earlier epochs that this leader lacks.

        Each member has fetched in this epoch and so truncated its log to the leader's, or did so in the previous epoch,
        which this broker led, too. Until then a member may still be elected and bring such records back. Until then,
        the absence of a batch here, and the end of an earlier epoch, are not final.
        """
        if self._led_before:
            return True
        others = [self.followers.get(one) for one in self.maximal_isr if one != self._rules.broker_id]
        return all(one is not None and one.log_end_offset >= 0 for one in others)

    # -- fences -------------------------------------------------------------------------------------------------

    def check_leader(self) -> None:
        """Raise unless this broker leads the partition."""
        if self.role is not Role.LEADER:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic}-{self.index} is led by {self.leader_id}")

    def check_epoch(self, believed: int) -> None:
        """Raise if the client's leader epoch is not the present one; -1 skips the check (KIP-320)."""
        if believed == self.leader_epoch or believed < 0:
            return
        if believed < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"epoch {believed} ended, now {self.leader_epoch}")
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"epoch {believed} is not known yet")

    def check_generation(self, batch_generation: int) -> None:
        """Raise if a batch has another generation than this partition (R5 ii, R6).

        A batch with a generation is also refused until the topic's znode says that it has such batches (R16).
        """
        if batch_generation == self.generation and not self.sealed:
            if self.has_generations:
                return
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{self.topic}: the controller has not yet recorded that producers with generations write to the topic",
            )
        raise KafkaError(
            ErrorCode.INVALID_PARTITION_METADATA,
            f"{self.topic}-{self.index} serves generation {self.generation}"
            f"{', sealed' if self.sealed else ''}; the batch was partitioned for {batch_generation}",
        )

    def require_in_sync(self, min_insync_replicas: int) -> None:
        """Set the topic's `min.insync.replicas`."""
        self.min_insync_replicas = min_insync_replicas

    def note_generations(self) -> None:
        """Record that the topic's znode says that it has batches with generations; never undone."""
        self.has_generations = True

    @property
    def effective_min_isr(self) -> int:
        """Return `min.insync.replicas`, but at most the number of replicas."""
        return min(self.min_insync_replicas, len(self.replicas))

    def check_min_isr(self) -> None:
        """Raise if too few replicas are in sync for an acks=all record."""
        if len(self.isr) < self.effective_min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic}-{self.index} has {len(self.isr)} in-sync replicas, needs {self.effective_min_isr}",
            )

    # -- followers and the high watermark -----------------------------------------------------------------------

    def record_fetch(self, replica: int, offset: int, log_start_offset: int, broker_epoch: int, now_ms: float) -> None:
        """Record that a follower fetched from `offset`, so it has everything before. The caller checked that it is a
        replica.
        """
        follower = self.followers[replica]
        known = follower.log_end_offset, follower.log_start_offset, follower.broker_epoch
        if known != (offset, log_start_offset, broker_epoch):
            self.notify_listeners()
        follower.record_fetch(offset, log_start_offset, broker_epoch, leader_end=self.log.log_end_offset, now_ms=now_ms)

    def at_rest(self, replica: int, broker_epoch: int) -> bool:
        """Return whether repeated fetches of a follower would change only the time when it was last caught up.

        It has the whole log, all of it is committed, and it is in sync with the broker epoch of the fetch.
        """
        follower, end = self.followers.get(replica), self.log.log_end_offset
        return (
            follower is not None
            and follower.log_end_offset == end == self.high_watermark
            and follower.broker_epoch == broker_epoch
            and replica in self.isr
        )

    @property
    def maximal_isr(self) -> Collection[int]:
        """Return the committed ISR and the replicas that a pending change adds: all need a record before it is
        committed.
        """
        if self.pending is None or len(self.pending.isr) <= len(self.isr):
            return self.isr
        return self.pending.isr

    def advance_high_watermark(self, now_ms: float) -> bool:
        """Advance the high watermark as far as the in-sync replicas allow; return whether it moved."""
        end = self.log.log_end_offset
        if self.role is not Role.LEADER or self.high_watermark >= end or len(self.isr) < self.effective_min_isr:
            return False
        safe, maximal, lag_max_ms = end, self.maximal_isr, self._rules.lag_time_max_ms
        for replica, follower in self.followers.items():
            if follower.log_end_offset < safe and (
                # A replica that is about to join holds the high watermark back, or it could never catch up.
                replica in maximal
                or (follower.caught_up(end, now_ms, lag_max_ms) and self._eligible(replica, follower))
            ):
                safe = follower.log_end_offset
        if safe <= self.high_watermark:
            return False
        self._raise_high_watermark(safe)
        return True

    @property
    def last_stable_offset(self) -> int:
        """Return the last stable offset: read_committed consumers read up to it."""
        return self.log.last_stable_offset(self.high_watermark)

    def follow_high_watermark(self, leader_high_watermark: int) -> bool:
        """Adopt the leader's high watermark, as far as the own log reaches; return whether it changed.

        A new leader may know a lower one than its predecessor; committed records stay committed.
        """
        before = self.high_watermark
        own = max(before, min(leader_high_watermark, self.log.log_end_offset), self.log.log_start_offset)
        if own == before:
            return False
        self._raise_high_watermark(own)
        return True

    def _raise_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset
        self.log.producers.forget_replicated(offset)
        self.notify_listeners()

    def _eligible(self, replica: int, follower: Follower) -> bool:
        """Return whether a follower is alive and last fetched with its registered broker epoch (KIP-903)."""
        registered = self._rules.broker_epoch_of(replica)
        if registered is None or follower.last_fetch_ms == NEVER:
            return False
        return follower.broker_epoch == registered or NO_EPOCH in (follower.broker_epoch, registered)

    # -- deleted records ----------------------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> int:
        """Delete records before an offset (-1: all committed ones); return the required log start offset."""
        self.check_leader()
        if not self.log.settings.deletes:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"{self.topic}-{self.index} is compacted: records cannot be deleted"
            )
        start = self.high_watermark if offset == TO_HIGH_WATERMARK else offset
        if not 0 <= start <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete up to {start}, the high watermark is {self.high_watermark}",
            )
        self.log.increment_log_start_offset(start)
        return start

    @property
    def low_watermark(self) -> int:
        """Return the lowest log start offset of all live replicas, as known from their fetches; -1 if one has not
        fetched.
        """
        alive = (one for replica, one in self.followers.items() if self._rules.broker_epoch_of(replica) is not None)
        return min([self.log.log_start_offset, *(follower.log_start_offset for follower in alive)])

    # -- the ISR ------------------------------------------------------------------------------------------------

    def propose_expand(self, replica: int, own_broker_epoch: int) -> IsrChange | None:
        """Propose to add a follower that has reached the high watermark and this leader's first offset."""
        if self.pending is not None or replica in self.isr or self.role is not Role.LEADER:
            return None
        follower = self.followers[replica]
        if follower.log_end_offset < max(self.high_watermark, self.leader_epoch_start_offset):
            return None
        if not self._eligible(replica, follower):
            return None
        return self._propose((*self.isr, replica), own_broker_epoch)

    def propose_shrink(self, now_ms: float, own_broker_epoch: int) -> IsrChange | None:
        """Propose to remove lagging members: without the whole log, and not caught up lately; None for an idle
        partition.
        """
        if self.pending is not None or self.role is not Role.LEADER:
            return None
        end, lag_max_ms = self.log.log_end_offset, self._rules.lag_time_max_ms
        kept = tuple(
            member
            for member in self.isr
            if (follower := self.followers.get(member)) is None or follower.caught_up(end, now_ms, lag_max_ms)
        )
        return None if kept == self.isr else self._propose(kept, own_broker_epoch)

    def propose_resign(self, own_broker_epoch: int) -> IsrChange | None:
        """Propose an ISR without this leader, to get another one: its disk has failed, and others are in sync."""
        others = tuple(member for member in self.isr if member != self._rules.broker_id)
        if self.log.durability.failure is None or not others or self.pending is not None or not self.is_leader:
            return None
        return self._propose(others, own_broker_epoch)

    def _propose(self, isr: tuple[int, ...], own_broker_epoch: int) -> IsrChange:
        epochs = tuple(
            own_broker_epoch if member == self._rules.broker_id else self.followers[member].broker_epoch
            for member in isr
        )
        self.pending = IsrChange(isr, epochs, self.leader_epoch, self.partition_epoch)
        return self.pending

    def on_answer(self, change: IsrChange, answer: PartitionDataResult) -> Verdict:
        """Resolve a proposal by the controller's answer (Kafka's `Partition.handleAlterPartitionError`)."""
        if self.pending is not change:
            return Verdict.OUTDATED
        verdict = verdict_of(ErrorCode(answer.error_code))
        if verdict is Verdict.COMMITTED:
            if answer.leader_epoch != self.leader_epoch or answer.partition_epoch < self.partition_epoch:
                return Verdict.WAITING
            self.isr = tuple(answer.isr)
            self.partition_epoch = answer.partition_epoch
            self.notify_listeners()
        if verdict in (Verdict.COMMITTED, Verdict.REVERTED):
            self.pending = None
        return verdict
