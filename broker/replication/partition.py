"""One replica of one partition as this broker sees it: its role, its fencing epochs, the ISR and the high watermark.

Decides: whether a LeaderAndIsr is news, who is in sync, when to ask for a smaller or larger ISR, how far consumers
may read, and whether a client's idea of the leader epoch or of the topic's generation is the present one. Does not
decide how bytes are stored (`storage.log`) or how the controller is reached (`isr_changes`): changes it wants are
returned as values.

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
    """What this broker does for the partition; NONE until the first LeaderAndIsr."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"


BrokerEpochOf = Callable[[int], int | None]
"""The epoch a broker is registered with: None when it is not alive, -1 when alive but the epoch is not known."""


@dataclass(slots=True)
class ReplicaRules:
    """The limits a partition is held to; the same object may serve many partitions."""

    broker_id: int
    lag_time_max_ms: int = 30000
    broker_epoch_of: BrokerEpochOf = field(default=lambda _: NO_EPOCH)


class Listener(Protocol):
    """Who took a look at a partition, and needs none again before something in it changes."""

    def stirred(self) -> None:
        """Something has changed. Said once: whoever looks again has to listen again."""


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
        self.stamped = False
        """Whether the topic is known to hold batches stamped with generations; once it does, it does for ever (R16)."""
        self.role = Role.NONE
        self.leader_id = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.leader_epoch_start_offset = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.pending: IsrChange | None = None
        self.generation = 0
        self.gen_start: tuple[tuple[int, int], ...] = ()
        self.sealed = False
        self.retiring = False
        """Sealed, and its controller was told that nothing is left in it: it is removed as it is, or gets an epoch."""
        self.followers: dict[int, Follower] = {}
        self.listeners: dict[Listener, None] = {}
        self._led_before = False
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self._rules = rules
        log.changed = self.changed

    def __repr__(self) -> str:
        return (
            f"<{self.topic}-{self.index} {self.role.value} of epoch {self.leader_epoch}.{self.partition_epoch} "
            f"isr {list(self.isr)} hw {self.high_watermark} end {self.log.log_end_offset} generation {self.generation}>"
        )

    # -- listeners ----------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Tell who listens that an answer about this partition may be another one now.

        Role, leader epoch, high watermark, ISR, what a follower was last known to have; by the log itself: its start,
        its end, its history. In the middle of a change: who is told takes a note, and looks later.
        """
        if self.listeners:
            listeners, self.listeners = self.listeners, {}
            for one in listeners:
                one.stirred()

    def move_to(self, log: PartitionLog) -> None:
        """Go on with a copy of the log that has everything."""
        self.log = log
        log.changed = self.changed
        self.changed()

    # -- roles --------------------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self.role is Role.LEADER

    def check_leader_and_isr(self, state: LeaderAndIsrPartitionState, topic_id: bytes) -> ErrorCode:
        """Whether a LeaderAndIsr row should be applied (NONE), or why not. Equal epochs are old news."""
        if any(topic_id) and any(self.topic_id) and topic_id != self.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if state.leader_epoch > self.leader_epoch:
            if self._rules.broker_id not in state.replicas:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return ErrorCode.NONE
        return ErrorCode.STALE_CONTROLLER_EPOCH

    def become_leader(self, state: LeaderAndIsrPartitionState, now_ms: float) -> None:
        """Lead from `state.leader_epoch` on. Followers in the ISR get a fresh chance to prove that they are in sync."""
        known, me = self.followers, self._rules.broker_id
        continues = self.role is Role.LEADER
        # No other broker can have led in between, so no replica has records of another leader since.
        self._led_before = continues and state.leader_epoch == self.leader_epoch + 1 and self.check_not_superseded
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
        """The controller has taken this replica away: it neither leads nor follows any more."""
        self.role = Role.NONE
        self.pending = None
        self.changed()

    def _adopt(self, state: LeaderAndIsrPartitionState, role: Role) -> None:
        assert state.leader_epoch > self.leader_epoch, f"{self}: leader epoch goes back to {state.leader_epoch}"
        self.role = role
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = tuple(state.replicas)
        self.pending = None
        # A controller without generations sends -1, which is what a topic that was never resized has anyway.
        self.generation = max(state.generation, 0)
        self.gen_start = tuple((start.generation, start.leader_epoch) for start in state.gen_start)
        self.retiring = False
        self.sealed = state.marked_for_deletion
        self.changed()

    def is_previous_incarnation(self, state: LeaderAndIsrPartitionState) -> bool:
        """Whether the log is of an earlier life of this index, which a broker kept that was down at its removal (R14).

        It begins below the present life, or with a record of an epoch before it: an earlier leader's tail, which no
        other replica had, stands at the very offset where that life ended and this one begins.
        """
        log = self.log
        begun_in = log.epochs.epoch_for(log.log_start_offset) if log.log_end_offset > log.log_start_offset else -1
        return log.log_start_offset < state.log_start_offset or 0 <= begun_in < state.first_leader_epoch

    def start_over_at(self, offset: int) -> None:
        """Forget the whole log and begin anew at an offset.

        So it is where the log is of an earlier life of this partition's index, which ended there (R14), and where the
        leader has deleted everything that this follower has, and more.
        """
        self.log.truncate_fully_and_start_at(offset)
        self.high_watermark = offset

    def truncate_to(self, offset: int) -> None:
        """Cut off a follower's records from an offset on: the leader has other ones, or none."""
        self.log.truncate_to(offset)
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)

    @property
    def check_not_superseded(self) -> bool:
        """Whether no member of the ISR can have records of earlier epochs that this leader lacks.

        Each has fetched in this epoch, and so has cut its log to ours, or it did so in the epoch before, which was ours
        too. Until then one of them may be elected after all and bring such records back: that a batch is not here, or
        where an earlier epoch ended, is not the last word.
        """
        if self._led_before:
            return True
        others = [self.followers.get(one) for one in self.maximal_isr if one != self._rules.broker_id]
        return all(one is not None and one.log_end_offset >= 0 for one in others)

    # -- fences -------------------------------------------------------------------------------------------------

    def check_leader(self) -> None:
        """Raise unless this broker leads."""
        if self.role is not Role.LEADER:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic}-{self.index} is led by {self.leader_id}")

    def check_epoch(self, believed: int) -> None:
        """Raise when the asker believes in another leader epoch; -1 means that it does not care (KIP-320)."""
        if believed == self.leader_epoch or believed < 0:
            return
        if believed < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"epoch {believed} ended, now {self.leader_epoch}")
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"epoch {believed} is not known here yet")

    def check_generation(self, stamp: int) -> None:
        """Raise when a producer hashed with another generation than this partition serves (R5 ii, R6).

        Nor is a batch taken before it is written down that the topic has stamped ones (R16).
        """
        if stamp == self.generation and not self.sealed:
            if self.stamped:
                return
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{self.topic}: the controller has not written yet that producers with generations write to it",
            )
        raise KafkaError(
            ErrorCode.INVALID_PARTITION_METADATA,
            f"{self.topic}-{self.index} serves generation {self.generation}"
            f"{', and is sealed' if self.sealed else ''}; the batch was partitioned for {stamp}",
        )

    def require_in_sync(self, min_insync_replicas: int) -> None:
        """`min.insync.replicas` of the topic is another one now."""
        self.min_insync_replicas = min_insync_replicas

    def note_stamped(self) -> None:
        """It is written down that the topic has batches of producers with generations; that is never unsaid."""
        self.stamped = True

    @property
    def effective_min_isr(self) -> int:
        """`min.insync.replicas`, but never more than there are replicas."""
        return min(self.min_insync_replicas, len(self.replicas))

    def check_min_isr(self) -> None:
        """Raise when too few replicas are in sync to take an acks=all record."""
        if len(self.isr) < self.effective_min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic}-{self.index} has {len(self.isr)} in sync, wants {self.effective_min_isr}",
            )

    # -- followers and the high watermark -----------------------------------------------------------------------

    def record_fetch(self, replica: int, offset: int, log_start_offset: int, broker_epoch: int, now_ms: float) -> None:
        """A follower asked for `offset`: it has everything before. The caller checked that it is a replica."""
        follower = self.followers[replica]
        known = follower.log_end_offset, follower.log_start_offset, follower.broker_epoch
        if known != (offset, log_start_offset, broker_epoch):
            self.changed()
        follower.fetched(offset, log_start_offset, broker_epoch, leader_end=self.log.log_end_offset, now_ms=now_ms)

    def at_rest(self, replica: int, broker_epoch: int) -> bool:
        """Whether a follower's asking once more could tell nothing, beyond when it was last seen to have everything.

        It has the whole log, all of it is committed, and it is in sync, in the life that is asking.
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
        """The committed ISR and the replicas that a pending change adds: all must have a record before it is safe."""
        if self.pending is None or len(self.pending.isr) <= len(self.isr):
            return self.isr
        return self.pending.isr

    def advance_high_watermark(self, now_ms: float) -> bool:
        """Move the high watermark as far as the in-sync replicas allow; whether it moved."""
        end = self.log.log_end_offset
        if self.role is not Role.LEADER or self.high_watermark >= end or len(self.isr) < self.effective_min_isr:
            return False
        safe, maximal, lag_max_ms = end, self.maximal_isr, self._rules.lag_time_max_ms
        for replica, follower in self.followers.items():
            if follower.log_end_offset < safe and (
                # A replica that is about to join holds the high watermark back, or it could never catch up with it.
                replica in maximal
                or (follower.caught_up(end, now_ms, lag_max_ms) and self._eligible(replica, follower))
            ):
                safe = follower.log_end_offset
        if safe <= self.high_watermark:
            return False
        self.high_watermark = safe
        self.changed()
        return True

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: read_committed consumers read up to it."""
        return self.log.last_stable_offset(self.high_watermark)

    def follow_high_watermark(self, leader_high_watermark: int) -> bool:
        """Take over the leader's high watermark, as far as the own log reaches; whether it changed.

        A new leader may know a lower one than its predecessor told us; what was committed stays committed.
        """
        before = self.high_watermark
        own = max(before, min(leader_high_watermark, self.log.log_end_offset), self.log.log_start_offset)
        if own == before:
            return False
        self.high_watermark = own
        self.changed()
        return True

    def _eligible(self, replica: int, follower: Follower) -> bool:
        """KIP-903: alive, and its last fetch came from the incarnation that is registered now."""
        registered = self._rules.broker_epoch_of(replica)
        if registered is None or follower.last_fetch_ms == NEVER:
            return False
        return follower.broker_epoch == registered or NO_EPOCH in (follower.broker_epoch, registered)

    # -- deleted records ----------------------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> int:
        """Delete what clients no longer want (-1: all that is committed); returns where the log has to start now."""
        self.check_leader()
        if not self.log.settings.deletes:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{self.topic}-{self.index} is compacted, not deleted from")
        start = self.high_watermark if offset == TO_HIGH_WATERMARK else offset
        if not 0 <= start <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"cannot delete up to {start}, committed is {self.high_watermark}"
            )
        self.log.increment_log_start_offset(start)
        return start

    @property
    def low_watermark(self) -> int:
        """Where the log starts on every live replica, as far as their fetches tell; -1 while one has not fetched."""
        alive = (one for replica, one in self.followers.items() if self._rules.broker_epoch_of(replica) is not None)
        return min([self.log.log_start_offset, *(follower.log_start_offset for follower in alive)])

    # -- the ISR ------------------------------------------------------------------------------------------------

    def propose_expand(self, replica: int, own_broker_epoch: int) -> IsrChange | None:
        """Ask to add a follower that has reached the high watermark and this leader's first offset."""
        if self.pending is not None or replica in self.isr or self.role is not Role.LEADER:
            return None
        follower = self.followers[replica]
        if follower.log_end_offset < max(self.high_watermark, self.leader_epoch_start_offset):
            return None
        if not self._eligible(replica, follower):
            return None
        return self._propose((*self.isr, replica), own_broker_epoch)

    def propose_shrink(self, now_ms: float, own_broker_epoch: int) -> IsrChange | None:
        """Ask to drop members that neither have the whole log nor were caught up lately; none of an idle partition."""
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
        """Ask for another leader, by an ISR without this one: its disk has failed, and others are in sync."""
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
        """Settle a proposal by the controller's answer (Kafka's `Partition.handleAlterPartitionError`)."""
        if self.pending is not change:
            return Verdict.OUTDATED
        verdict = verdict_of(ErrorCode(answer.error_code))
        if verdict is Verdict.COMMITTED:
            if answer.leader_epoch != self.leader_epoch or answer.partition_epoch < self.partition_epoch:
                return Verdict.WAITING
            self.isr = tuple(answer.isr)
            self.partition_epoch = answer.partition_epoch
            self.changed()
        if verdict in (Verdict.COMMITTED, Verdict.REVERTED):
            self.pending = None
        return verdict
