"""Which partitions this consumer reads, and what has to be done before it reads others.

An assignment is made from the shape of each topic: its id, its generation, its partitions. When metadata shows another
shape, or the membership has lapsed, the group is joined again: an eager member gives everything up before. A
cooperative one (KIP-429) reads on, gives up afterwards what the new assignment takes from it, and then joins again at
once. The rebalance is also the barrier that makes resizes safe for members whose metadata lags: no member delivers a
record of a generation before a rebalance in which every member has flushed what it read of older ones, and members that
read on meanwhile commit nothing of it before they know the generation.

`Ownership` says step by step what is due (`next_step`), and is told what was done. It believes nothing over a step:
whether the group still has this member is looked at again each time. So a member that the group throws out while its
application still flushes takes up nothing, and tells that everything is lost.

A topic of another id is another topic, though its name be the same: positions in the old one mean nothing, and are not
committed. Source: Kafka's ConsumerCoordinator; KIP-429. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from anabranch.clients.consumer.classic_group_membership import Assigned, ClassicMembership, TopicShape
from anabranch.clients.consumer.progress import Assignment, PartitionProgress
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
    """The partitions of one consumer; `membership` is None for one that reads everything by itself."""

    def __init__(
        self,
        topics: Sequence[str],
        assignment: Assignment,
        gates: Gates,
        membership: ClassicMembership | None,
        *,
        automatic: bool,
    ) -> None:
        self._topics = topics
        self._assignment = assignment
        self._gates = gates
        self._membership = membership
        self._automatic = automatic
        """Whether positions are committed without a word of the application."""
        self.metadata = ClusterMetadata()
        self._looked_at: ClusterMetadata | None = None
        self._complained_of: ClusterMetadata | None = None
        """The answer of which the application knows that it refuses a topic."""
        self._made_from: dict[str, TopicShape] | None = None
        self._wanted = False
        """Whether the application, or the assignor, has asked for a rebalance."""
        self.joining = False
        """Whether a cooperative member reads on while it joins: until then it commits nothing by itself."""
        self._assigned: Assigned | None = None
        """The assignment of the last join, until it is taken up."""
        self._join_failure: BaseException | None = None
        self._gone: set[TopicPartition] = set()
        """Partitions of topics that were created anew: the application has to hear of it."""
        self._untold: set[TopicPartition] | None = None
        """New partitions that the application has not heard of yet."""
        self._departing: set[TopicPartition] = set()
        """Partitions that are being given up, as the application has heard."""
        self._stored = False
        """Whether what was read was committed for that, or for a join, as far as it could be."""
        self._gave_up = False
        """Whether the assignment at hand has taken something away: others wait for another join then."""
        self.rebalances = 0
        """Assignments taken from the group."""

    # what is heard

    def want_rebalance(self) -> None:
        """Join again when it can be done, though nothing is wrong."""
        self._wanted = True

    def begin_join(self) -> None:
        """The join of a cooperative member goes out now: it says what the member reads."""
        assert self._membership is not None, "only members of groups join"
        self._wanted = self._stored = False
        self.joining = True
        self._membership.owns([progress.partition for progress in self._assignment])

    def joined(self, assigned: Assigned | None, failure: BaseException | None = None) -> None:
        """A join is over: with an assignment, without one (then join again), or with a failure for the application."""
        self.joining = False
        self._assigned, self._join_failure = assigned, failure

    def take_up(self, assigned: Assigned) -> None:
        """Read what was assigned from now on. What stays goes on where it is."""
        assert self._membership is not None, "only members of groups are given something"
        self._assigned = None
        self.rebalances += 1
        # A leader that knew less than we do is noticed by the difference, and asked again with what is known by then.
        generations = assigned.generations
        shapes = {
            name: shape._replace(generation=generations.get(name, shape.generation))
            for name, shape in self._shapes().items()
        }
        shapes.update({name: shape for name, shape in assigned.shapes.items() if name in self._topics})
        self._untold = set(assigned.partitions) - {progress.partition for progress in self._assignment}
        self._assignment.adjust(assigned.partitions)
        self._membership.owns(assigned.partitions)
        self._remember(shapes)
        if self._gave_up:
            self._gave_up = False
            self._membership.expire()

    def on_notified_assigned(self) -> None:
        """The application has heard of the new partitions."""
        self._untold = None

    def on_notified_gone(self) -> None:
        """The application has heard of partitions that are not there any more."""
        self._gone.clear()

    def on_notified_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """The application has heard that these leave it."""
        self._departing |= set(partitions)

    def stored(self) -> None:
        """What was read is committed, or cannot be: then the next owner begins further back."""
        self._stored = True

    # what is due

    def next_step(self) -> Step | None:
        """What has to be done before anything is handed out; None when the assignment stands and was told of.

        KafkaError if a topic is refused for good, and whatever a join failed with: each is raised once.
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
        if step is None and self._untold is not None:
            return NotifyAssigned(frozenset(self._untold))
        return step

    def missing_topics(self) -> list[str]:
        """The topics that are not usable yet: they have to be asked for again."""
        return [name for name in self._topics if name not in self.metadata.topics]

    def give_up(self, *, replaced: bool = False) -> Step | None:
        """The next step of giving everything back to the group, because the consumer stops; None after the last.

        `replaced`: the group has gone on without this member, or may have.
        """
        return self._give_up(None, replaced=replaced or (self._membership is not None and self._membership.lost))

    def _eagerly(self, membership: ClassicMembership) -> Step | None:
        """Give everything up, and take what the group gives."""
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
        self._wanted = False
        self._made_from = None
        membership.expire()
        self._leave(None)
        return Join()

    def _cooperatively(self, membership: ClassicMembership) -> Step | None:
        """As far as that goes without waiting for others: what is left is done when the join is."""
        if self.joining:
            return None
        if self._join_failure is not None:
            failure, self._join_failure = self._join_failure, None
            raise failure
        if self._assigned is not None and not membership.lost:
            return self._make_way(self._assigned)
        self._assigned = None
        if self._untold is not None:
            return NotifyAssigned(frozenset(self._untold))
        if not (self._departing or self._on_membership_lost() or self._topics_changed()):
            return None
        self._gone |= self._drop_other_topics()
        if self._gone:
            return NotifyGone(frozenset(self._gone))
        if membership.lost and len(self._assignment):  # to be given up first: others may get it from the join on
            step = self._give_up(None, replaced=True)
            if step is not None:
                return step
            self._leave(None)
        return self._flush(list(self._assignment)) or self._store(None) or JoinInBackground()

    def _make_way(self, assigned: Assigned) -> Step:
        """Give up what an assignment takes away, take up the rest; then join again: others wait for the former."""
        leaving = {progress.partition for progress in self._assignment} - set(assigned.partitions)
        if leaving:
            step = self._give_up(leaving, replaced=False)
            if step is not None:
                return step
            self._gave_up = True
            self._leave(leaving)
        return AdoptAssignment(assigned)

    def _give_up(self, partitions: Collection[TopicPartition] | None, *, replaced: bool) -> Step | None:
        """These, or all, go back to the group: flush, tell, commit. None when that is done, or there are none."""
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
        """Stop reading these partitions, or all."""
        if partitions is None:
            self._assignment.replace(())
        else:
            self._assignment.drop(partitions)
        self._gates.forget(partitions)
        self._departing.clear()
        self._stored = False

    def _flush(self, rows: Collection[PartitionProgress]) -> Step | None:
        """The application is to flush what was read of these since it was last told, where keys can move."""
        unflushed = [progress for progress in rows if progress.unflushed]
        keyed = [one for one in unflushed if self._gates.gate(one.partition.topic) is not None]
        for progress in unflushed:
            if progress not in keyed:
                progress.flush()
        return Flush(tuple(Flushed(one, one.begun, None) for one in keyed)) if keyed else None

    def _store(self, partitions: Collection[TopicPartition] | None) -> Step | None:
        """Commit the positions of these, or all, unless that is the application's business; tried once."""
        if self._stored:
            return None
        if not self._automatic:
            return StoreAudit()
        positions = self._assignment.positions()
        offsets = {one: at for one, at in positions.items() if partitions is None or one in partitions}
        return Commit(offsets, Reason.DEPARTURE) if offsets else None

    # topics

    def _on_membership_lost(self) -> bool:
        if self._made_from is None or self._wanted:
            return True
        return self._membership is not None and (self._membership.lost or not self._membership.stable)

    def _topics_changed(self) -> bool:
        """Whether a topic was resized, deleted or created anew since the assignment was made from it."""
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
            for name in self._topics
            if name in topics
        }

    def _remember(self, shapes: dict[str, TopicShape]) -> None:
        self._made_from = shapes
        self._assignment.note_generations({name: shape.generation for name, shape in shapes.items()})

    def _take_everything(self) -> None:
        """Without a group: every partition of every topic, those that go on where they are included."""
        self._drop_other_topics()
        self._wanted = False
        topics = self.metadata.topics
        everything = [
            TopicPartition(name, index) for name in self._topics if name in topics for index in topics[name].partitions
        ]
        self._assignment.adjust(everything)
        self._untold = set(everything)
        self._remember(self._shapes())

    def _drop_other_topics(self) -> set[TopicPartition]:
        """Positions in a topic must not be committed to the next one of its name: these partitions are gone.

        A topic that is missing may still be there: a broker that has just started does not know it yet.
        """
        shapes = self._shapes()
        before = {progress.partition for progress in self._assignment}
        for name, shape in (self._made_from or {}).items():
            if name in shapes and shapes[name].topic_id != shape.topic_id:
                log.info("%s was created anew: it is read from its start", name)
                self._assignment.drop_topic(name)
        return before - {progress.partition for progress in self._assignment}

    def _complain(self) -> None:
        """A topic that is refused for good is told once per answer."""
        if self.metadata is self._complained_of:
            return
        for name in self.missing_topics():
            code = self.metadata.errors.get(name, ErrorCode.NONE)
            if code in REFUSED_FOR_GOOD:
                self._complained_of = self.metadata
                raise KafkaError(code, name)
