"""Manages a consumer's assignment: decides the steps of a rebalance.

An assignment is made from the shape of each topic: its id, its generation, its partitions. When metadata shows another
shape, or the membership is invalid, the member rejoins: an eager member revokes everything before. A cooperative one
(KIP-429) keeps reading, revokes afterwards what the new assignment takes from it, and then rejoins at once. The
rebalance is also the barrier that makes resizes safe for members whose metadata lags: no member delivers a record of a
generation before a rebalance in which every member has flushed its records of older ones, and members that keep reading
meanwhile commit nothing of it before they know the generation.

`Ownership` returns one step at a time (`next_step`), and receives its result. It checks the membership again for each
step. So a member that the group removes during the application's flush adopts nothing, and reports everything as lost.

A topic with another id is another topic, even with the same name: positions in the old one are invalid, and are not
committed. Source: Kafka's ConsumerCoordinator; KIP-429. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence

from anabranch.clients.consumer.assignment import Assignment
from anabranch.clients.consumer.classic_group_membership import Assigned, ClassicMembership, TopicShape
from anabranch.clients.consumer.progress import PartitionProgress
from anabranch.clients.consumer.steps import (
    AdoptAssignment,
    Commit,
    Flush,
    Flushed,
    Join,
    JoinInBackground,
    NotifyAssigned,
    NotifyGone,
    NotifyLost,
    NotifyRevoked,
    Reason,
    Step,
    StoreAudit,
)
from anabranch.clients.consumer.topic_gates import Gates
from anabranch.clients.metadata import REFUSED_FOR_GOOD, ClusterMetadata
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class Ownership:
    """The partitions of one consumer; `membership` is None without a group."""

    def __init__(
        self,
        topics: Sequence[str],
        assignment: Assignment,
        gates: Gates,
        membership: ClassicMembership | None,
        *,
        automatic: bool,
    ) -> None:
        self.topics = topics
        self.chosen: frozenset[TopicPartition] | None = None
        """The partitions chosen by `assign`, instead of all partitions of the topics."""
        self._assignment = assignment
        self._gates = gates
        self._membership = membership
        self._automatic = automatic
        """Whether positions are committed automatically."""
        self.metadata = ClusterMetadata()
        self._looked_at: ClusterMetadata | None = None
        self._complained_of: ClusterMetadata | None = None
        """The metadata whose topic error the application has received."""
        self._made_from: dict[str, TopicShape] | None = None
        self._rebalance_requested = False
        """Whether the application or the assignor has requested a rebalance."""
        self.joining = False
        """Whether a cooperative member's join is in progress: until it ends, there are no automatic commits."""
        self._assigned: Assigned | None = None
        """The assignment of the last join, until it is adopted."""
        self._join_failure: BaseException | None = None
        self._topic_ids: dict[str, bytes] = {}
        """The id of each assigned topic: the one that positions are in. A missing topic keeps it."""
        self._gone: set[TopicPartition] = set()
        """Partitions of recreated topics; the application must be notified of each."""
        self._unreported_assignment: set[TopicPartition] | None = None
        """New partitions that the application is not notified of yet."""
        self._departing: set[TopicPartition] = set()
        """Partitions being revoked; the application is notified of each."""
        self._stored = False
        """Whether positions were committed for the revocation or join, as far as possible."""
        self._gave_up = False
        """Whether this assignment revoked partitions: others then wait for another join."""
        self.rebalances = 0
        """Assignments received from the group."""

    # results and news

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions alone from the next step on; without a group."""
        self.chosen = frozenset(partitions)
        self.topics = sorted({one.topic for one in partitions})
        self._rebalance_requested = True

    def want_rebalance(self) -> None:
        """Request a rebalance, without another reason."""
        self._rebalance_requested = True

    def begin_join(self) -> None:
        """Note that a cooperative member's join starts now, with the partitions that it reads."""
        assert self._membership is not None, "only members of groups join"
        self._rebalance_requested = self._stored = False
        self.joining = True
        self._membership.owns([progress.partition for progress in self._assignment])

    def complete_join(self, assigned: Assigned | None, failure: BaseException | None = None) -> None:
        """Complete a join: with an assignment, without one (then rejoin), or with an error for the application."""
        self.joining = False
        self._assigned, self._join_failure = assigned, failure

    def take_up(self, assigned: Assigned) -> None:
        """Adopt an assignment. Kept partitions continue at their positions."""
        assert self._membership is not None, "only members of groups get an assignment"
        self._assigned = None
        self.rebalances += 1
        # If the leader used older metadata, the difference leads to a rejoin.
        generations = assigned.generations
        shapes = {
            name: shape._replace(generation=generations.get(name, shape.generation))
            for name, shape in self._shapes().items()
        }
        shapes.update({name: shape for name, shape in assigned.shapes.items() if name in self.topics})
        self._unreported_assignment = set(assigned.partitions) - {progress.partition for progress in self._assignment}
        self._assignment.adjust(assigned.partitions)
        self._note_topics()
        self._membership.owns(assigned.partitions)
        self._remember(shapes)
        if self._gave_up:
            self._gave_up = False
            self._membership.expire()

    def on_notified_assigned(self) -> None:
        """Note that the application was notified of the new partitions."""
        self._unreported_assignment = None

    def on_notified_gone(self) -> None:
        """Note that the application was notified of partitions that no longer exist."""
        self._gone.clear()

    def on_notified_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Note that the application was notified of these revocations."""
        self._departing |= set(partitions)

    def on_positions_stored(self) -> None:
        """Note that positions are committed, or cannot be: then the next owner starts at an earlier offset."""
        self._stored = True

    # steps

    def next_step(self) -> Step | None:
        """Return the step that must precede delivery; None if the assignment is valid and announced.

        Raises KafkaError if a topic is refused for good, and the error of a failed join: each once.
        """
        self._complain()
        step = None
        if self._membership is None:
            if self._on_membership_lost() or self._topics_changed():
                self._take_everything()
        elif self._membership.cooperative:
            step = self._cooperatively(self._membership)
        else:
            step = self._eagerly(self._membership)
        if step is None and self._unreported_assignment is not None:
            return NotifyAssigned(frozenset(self._unreported_assignment))
        return step

    def reads(self, partition: TopicPartition) -> bool:
        """Whether the partition is assigned now, before a join in progress ends."""
        return self._assignment.get(partition) is not None

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, bytes]:
        """Return the ids of the topics of these partitions: those that positions are in, else those of metadata."""
        names = {one.topic for one in partitions}
        shown = {name: self.metadata.topics[name].topic_id for name in names & self.metadata.topics.keys()}
        return shown | {name: self._topic_ids[name] for name in names & self._topic_ids.keys()}

    def reads_nothing(self) -> bool:
        """Whether there are no topics, and no partitions are chosen yet."""
        return not self.topics and self.chosen is None

    def missing_topics(self) -> list[str]:
        """Return the topics that are not usable yet, to request again."""
        return [name for name in self.topics if name not in self.metadata.topics]

    def give_up(self, *, replaced: bool = False) -> Step | None:
        """Return the next step of revoking everything at a stop; None after the last.

        `replaced`: the group continued without this member, or may have.
        """
        return self._give_up(None, replaced=replaced or (self._membership is not None and self._membership.lost))

    def _eagerly(self, membership: ClassicMembership) -> Step | None:
        """Revoke everything, then adopt the new assignment."""
        if self._assigned is not None:
            if membership.stable:
                return AdoptAssignment(self._assigned)
            self._assigned = None
        if not (self._departing or self._on_membership_lost() or self._topics_changed()):
            return None
        self._drop_other_topics()
        step = self._give_up(None, replaced=membership.lost)
        if step is not None:
            return step
        self._rebalance_requested = False
        self._made_from = None
        membership.expire()
        self._leave(None)
        return Join()

    def _cooperatively(self, membership: ClassicMembership) -> Step | None:
        """Take the steps that need not wait for others; the rest follows when the join is complete."""
        if self.joining:
            return None
        if self._join_failure is not None:
            failure, self._join_failure = self._join_failure, None
            raise failure
        if self._assigned is not None and not membership.lost:
            return self._report_gone() or self._make_way(self._assigned)
        self._assigned = None
        if self._unreported_assignment is not None:
            return NotifyAssigned(frozenset(self._unreported_assignment))
        if not (self._departing or self._on_membership_lost() or self._topics_changed()):
            return None
        gone = self._report_gone()
        if gone is not None:
            return gone
        if membership.lost and len(self._assignment):  # revoke first: others may get them after the join
            step = self._give_up(None, replaced=True)
            if step is not None:
                return step
            self._leave(None)
        return self._flush(list(self._assignment)) or self._store(None) or JoinInBackground()

    def _make_way(self, assigned: Assigned) -> Step:
        """Revoke partitions that the assignment lacks, adopt the rest, and rejoin: others wait for the revoked ones."""
        leaving = {progress.partition for progress in self._assignment} - set(assigned.partitions)
        if leaving:
            step = self._give_up(leaving, replaced=False)
            if step is not None:
                return step
            self._gave_up = True
            self._leave(leaving)
        return AdoptAssignment(assigned)

    def _give_up(self, partitions: Collection[TopicPartition] | None, *, replaced: bool) -> Step | None:
        """Revoke these or all partitions: flush, notify, commit. Returns None when done, or if there are none."""
        leaving = [one for one in self._assignment if partitions is None or one.partition in partitions]
        owned = frozenset(progress.partition for progress in leaving)
        if not owned:
            return None
        untold = owned - self._departing
        if not untold:
            return None if replaced else self._store(owned)
        if replaced:
            return NotifyLost(untold)
        return self._flush(leaving) or NotifyRevoked(untold)

    def _leave(self, partitions: Collection[TopicPartition] | None) -> None:
        if partitions is None:
            self._assignment.replace(())
        else:
            self._assignment.drop(partitions)
        self._note_topics()
        self._gates.forget(partitions)
        self._departing.clear()
        self._stored = False

    def _flush(self, rows: Collection[PartitionProgress]) -> Step | None:
        """Return the application's flush of records read since the last one, where keys can move."""
        unflushed = [progress for progress in rows if progress.unflushed]
        keyed = [one for one in unflushed if self._gates.gate(one.partition.topic) is not None]
        for progress in unflushed:
            if progress not in keyed:
                progress.flush()
        return Flush(tuple(Flushed(one, one.begin_number, None) for one in keyed)) if keyed else None

    def _store(self, partitions: Collection[TopicPartition] | None) -> Step | None:
        """Commit the positions of these or all partitions, if commits are automatic; tried once."""
        if self._stored:
            return None
        if not self._automatic:
            return StoreAudit()
        positions = self._assignment.positions()
        offsets = {one: at for one, at in positions.items() if partitions is None or one in partitions}
        return Commit(offsets, Reason.DEPARTURE) if offsets else None

    # topics

    def _on_membership_lost(self) -> bool:
        if self._made_from is None or self._rebalance_requested:
            return True
        return self._membership is not None and (self._membership.lost or not self._membership.stable)

    def _topics_changed(self) -> bool:
        """Whether a topic was resized, deleted or recreated since the assignment was made."""
        if self.metadata is self._looked_at:
            return False
        if self._shapes() != self._made_from:
            return True
        self._looked_at = self.metadata
        return False

    def _shapes(self) -> dict[str, TopicShape]:
        topics = self.metadata.topics
        return {
            name: TopicShape(topics[name].generation, frozenset(topics[name].partitions), topics[name].topic_id)
            for name in self.topics
            if name in topics
        }

    def _remember(self, shapes: dict[str, TopicShape]) -> None:
        self._made_from = shapes
        self._assignment.note_generations({name: shape.generation for name, shape in shapes.items()})

    def _take_everything(self) -> None:
        """Without a group: assign the chosen or all partitions of every topic; current ones continue.

        So do those of a missing topic, which may still exist: nobody else knows their positions.
        """
        self._drop_other_topics()
        self._rebalance_requested = False
        topics = self.metadata.topics
        everything = [
            TopicPartition(name, index) for name in self.topics if name in topics for index in topics[name].partitions
        ]
        current = (progress.partition for progress in self._assignment)
        everything += [one for one in current if one.topic in self.topics and one.topic not in topics]
        if self.chosen is not None:
            everything = [one for one in everything if one in self.chosen]
        self._assignment.adjust(everything)
        self._note_topics()
        self._unreported_assignment = set(everything)
        self._remember(self._shapes())

    def _note_topics(self) -> None:
        """Note the ids of topics that were not assigned before; forget those of topics that no longer are."""
        known, shown = self._topic_ids, self.metadata.topics
        assigned = {progress.partition.topic for progress in self._assignment}
        self._topic_ids = {
            name: known[name] if name in known else shown[name].topic_id
            for name in assigned
            if name in known or name in shown
        }

    def _report_gone(self) -> NotifyGone | None:
        """Drop partitions of recreated topics, and return the step that tells the application."""
        self._gone |= self._drop_other_topics()
        return NotifyGone(frozenset(self._gone)) if self._gone else None

    def _drop_other_topics(self) -> set[TopicPartition]:
        """Drop partitions of recreated topics: their positions must not be committed to the new topic.

        A missing topic may still exist: a broker that has just started does not know it yet.
        """
        topics = self.metadata.topics
        before = {progress.partition for progress in self._assignment}
        for name, topic_id in self._topic_ids.items():
            if name in topics and topics[name].topic_id != topic_id:
                log.info("%s was deleted and created again: reading it from its start", name)
                self._assignment.drop_topic(name)
        self._note_topics()
        return before - {progress.partition for progress in self._assignment}

    def _complain(self) -> None:
        if self.metadata is self._complained_of:
            return
        for name in self.missing_topics():
            code = self.metadata.errors.get(name, ErrorCode.NONE)
            if code in REFUSED_FOR_GOOD:
                self._complained_of = self.metadata
                raise KafkaError(code, name)
