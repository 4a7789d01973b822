"""Which partitions this consumer reads, and from where: joining, noticing that topics have changed, starting positions.

An assignment is made from the shape of each topic: its id, its generation, its partitions. When metadata shows another
shape, or the membership has lapsed, the group is joined again: an eager member gives everything up before. A
cooperative one (KIP-429) reads on, gives up afterwards what the new assignment takes from it, and then joins again at
once. The rebalance is also the barrier that makes resizes safe for members whose metadata lags: nobody delivers a
record of a generation before a rebalance in which every member has flushed what it read of older ones, and those who
read on meanwhile commit nothing of it before they know the generation. Rules:

    R19   the assignment carries the generations it was made from; a member waits for metadata at least that new, and
          for every partition it was given, so that nobody reads a child without knowing its parent
    R20   a partition that a resize created is read from its start by a group that has been reading the topic
    R10   a position that comes from the reset policy is committed at once: others may wait for just that

A topic of another id is another topic, though its name be the same: positions in the old one mean nothing, and are not
committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from anabranch.clients.consumer.consumer_partition_assignor import REJOIN_NOW, MemberAssignment
from anabranch.clients.consumer.gatekeeper import Gatekeeper
from anabranch.clients.consumer.group_session import GroupSession
from anabranch.clients.consumer.handover import HandOver
from anabranch.clients.consumer.membership import NO_GENERATION, Assigned, State, TopicShape
from anabranch.clients.consumer.offset_lookup import OffsetResets
from anabranch.clients.consumer.progress import UNKNOWN, Assignment
from anabranch.clients.metadata import REFUSED_FOR_GOOD, ClusterMetadata
from anabranch.clients.network import Network
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

MISSING_TOPIC_REFRESH_S: Final = 0.2
SYNC_PATIENCE_S: Final = 2.0
METADATA_PATIENCE_MS: Final = 10_000
"""How long to look for what the leader of the group knew, before the group is asked again."""


class Ownership:
    """The partitions of one consumer."""

    def __init__(
        self,
        topics: Sequence[str],
        network: Network,
        assignment: Assignment,
        gatekeeper: Gatekeeper,
        session: GroupSession | None,
        resets: OffsetResets,
        handover: HandOver,
        *,
        clock_ms: Callable[[], int],
        on_change: Callable[[], None],
        on_positions: Callable[[], None],
    ) -> None:
        self._topics = topics
        self._network = network
        self._assignment = assignment
        self._gatekeeper = gatekeeper
        self._session = session
        self._resets = resets
        self._handover = handover
        self._looked_at: ClusterMetadata | None = None
        self._complained_of: ClusterMetadata | None = None
        """The answer of which the application knows that it refuses a topic."""
        self._made_from: dict[str, TopicShape] | None = None
        self._untold: set[TopicPartition] | None = None
        """New partitions that the listener has not heard of yet."""
        self._clock_ms = clock_ms
        self._on_change = on_change
        self._on_positions = on_positions
        self._joining: asyncio.Task[Assigned | None] | None = None
        """The join of a cooperative member, until what came of it is carried out."""
        self._gave_up = False
        self._wanted = False
        """Whether somebody has asked for a rebalance."""
        self._again: asyncio.TimerHandle | None = None
        self._rejoin_timer: asyncio.TimerHandle | None = None
        self.rebalances = 0

    async def close(self) -> None:
        """Look for nothing any more, and join nothing. Who is as good as in waits for that: it may commit then."""
        for timer in (self._again, self._rejoin_timer):
            if timer is not None:
                timer.cancel()
        if self._joining is None:
            return
        assert self._session is not None, "only members of groups join"
        if self._session.membership.state is State.SYNCING:
            await asyncio.wait([self._joining], timeout=SYNC_PATIENCE_S)
        self._joining.cancel()
        await asyncio.gather(self._joining, return_exceptions=True)
        self._joining = None

    @property
    def rebalancing(self) -> bool:
        """Whether this member reads on while the group rebalances."""
        return self._joining is not None and not self._joining.done()

    async def rebalanced(self, *, timeout_ms: float) -> None:
        """Wait until no rebalance is under way; KafkaError REBALANCE_IN_PROGRESS if that takes too long."""
        if self._joining is None or self._joining.done():
            return
        await asyncio.wait([self._joining], timeout=timeout_ms / 1000)
        if self.rebalancing:
            raise KafkaError(
                ErrorCode.REBALANCE_IN_PROGRESS, "nothing can be committed before the group has rebalanced"
            )

    def want_rebalance(self) -> None:
        """Join again with the next request for records, though nothing is wrong."""
        self._wanted = True
        self._on_change()

    async def settle(self) -> None:
        """Make sure that there is an assignment that still counts, and a position in each of its partitions."""
        self._look_for_missing_topics()
        if self._session is not None and self._session.membership.cooperative:
            await self._settle_cooperatively(self._session)
        else:
            while self._lapsed() or self._topics_changed():
                await self._renew()
        await self._tell()
        if not self._assignment.begun:
            await self._begin()
        await self._handover.commit_starts()
        if any(progress.must_reset for progress in self._assignment):
            await self._reset()

    # the assignment

    def _lapsed(self) -> bool:
        if self._made_from is None or self._wanted:
            return True
        return self._session is not None and (self._session.lost or not self._session.stable)

    def _topics_changed(self) -> bool:
        """Whether a topic was resized, deleted or created anew since the assignment was made from it."""
        if self._network.metadata is self._looked_at:
            return False
        shapes = self._shapes()
        if shapes != self._made_from:
            return True
        self._looked_at = self._network.metadata
        return False

    def _shapes(self) -> dict[str, TopicShape]:
        topics = self._network.metadata.topics
        return {
            name: TopicShape(topics[name].generation, frozenset(topics[name].partitions), topics[name].topic_id)
            for name in self._topics
            if name in topics
        }

    async def _renew(self) -> None:
        """Give everything up, and take what the group gives."""
        self._drop_other_topics()
        self._wanted = False
        if self._session is None:
            self._take_everything()
            return
        await self._handover.give_up()
        self._made_from = None
        self._session.membership.lapse()
        self._assignment.replace(())
        self._gatekeeper.forget()
        assigned = await self._session.join()
        assert assigned is not None, "who has given up everything cannot lose it"
        if await self._learn(assigned, self._session):
            self._take_up(assigned, self._session)

    async def _settle_cooperatively(self, session: GroupSession) -> None:
        """As far as that goes without waiting for others: what is left is done when the join is."""
        while not self.rebalancing:
            if self._joining is not None:
                await self._carry_out(self._joining, session)
            await self._tell()
            if not (self._lapsed() or self._topics_changed()):
                return
            await self._begin_join(session)

    async def _begin_join(self, session: GroupSession) -> None:
        """Flush and commit what was read, and go on reading while the group rebalances; what is lost ends here."""
        await self._handover.lose(self._drop_other_topics())
        if session.lost:
            await self._handover.give_up()
            self._assignment.replace(())
            self._gatekeeper.forget()
        await self._handover.pause_for_rebalance()
        if session.lost and len(self._assignment):
            return  # only now: it is to be given up first
        self._wanted = False
        session.membership.owns([progress.partition for progress in self._assignment])
        self._joining = asyncio.create_task(self._join(session), name=f"join of {session.membership.group_id}")
        self._joining.add_done_callback(lambda _: self._on_change())

    async def _join(self, session: GroupSession) -> Assigned | None:
        while not session.membership.lost:
            session.membership.lapse()
            assigned = await session.join()
            if assigned is not None and await self._learn(assigned, session):
                return assigned
        return None

    async def _carry_out(self, joining: asyncio.Task[Assigned | None], session: GroupSession) -> None:
        """Give up what the assignment takes away, take up the rest; then join again if others wait for the former."""
        if joining.cancelled() or joining.exception() is not None:
            self._joining = None
        assigned = joining.result()
        if assigned is None or session.lost:
            self._joining = None
            return
        leaving = {progress.partition for progress in self._assignment} - set(assigned.partitions)
        if leaving:
            self._gave_up = True
            await self._handover.give_up(leaving)
            self._assignment.drop(leaving)
            self._gatekeeper.forget(leaving)
        self._joining = None
        self._take_up(assigned, session)
        if self._gave_up:
            self._gave_up = False
            session.membership.lapse()

    def _take_up(self, assigned: Assigned, session: GroupSession) -> None:
        self.rebalances += 1
        # A leader that knew less than we do is noticed by the difference, and asked again with what is known by then.
        own = self._shapes()
        generations = assigned.generations
        theirs = {
            name: shape._replace(generation=generations.get(name, shape.generation)) for name, shape in own.items()
        }
        theirs.update({name: shape for name, shape in assigned.shapes.items() if name in self._topics})
        given = MemberAssignment(assigned.partitions, assigned.user_data)
        self._plan_rejoin(session.membership.assignor.on_assignment(given, assigned.group_generation))
        self._untold = set(assigned.partitions) - {progress.partition for progress in self._assignment}
        self._assignment.adjust(assigned.partitions)
        session.membership.owns(assigned.partitions)
        self._remember(theirs)
        self._gatekeeper.watch()

    def _remember(self, shapes: dict[str, TopicShape]) -> None:
        self._made_from = shapes
        self._assignment.generations = {name: shape.generation for name, shape in shapes.items()}

    def _plan_rejoin(self, at_ms: int | None) -> None:
        """What the assignor wants: join again now, at a time, or only when there is a reason."""
        if self._rejoin_timer is not None:
            self._rejoin_timer.cancel()
            self._rejoin_timer = None
        if at_ms is not None:
            wait_s = max(at_ms - self._clock_ms(), 0) / 1000 if at_ms != REJOIN_NOW else 0
            self._rejoin_timer = asyncio.get_running_loop().call_later(wait_s, self.want_rebalance)

    async def _tell(self) -> None:
        if self._untold is not None:
            await self._handover.take_over(self._untold)
            self._untold = None

    async def _learn(self, assigned: Assigned, session: GroupSession) -> bool:
        """R19: metadata as new as the leader's. False when the assignment is void before that is reached."""

        def known(metadata: ClusterMetadata) -> bool:
            if not session.stable:
                return True
            for topic, generation in assigned.generations.items():
                shown = metadata.topics.get(topic)
                if topic in self._topics and (shown is None or shown.generation < generation):
                    return False
            # A leader of another kind names no generations; but what it gave out exists.
            return all(metadata.partition(*partition) is not None for partition in assigned.partitions)

        try:
            await self._network.wait_for(known, timeout_ms=METADATA_PATIENCE_MS)
        except TimeoutError:
            log.warning("the group's leader knew topics that cannot be found (deleted since?), joining again")
            session.membership.lapse()
        return session.stable

    def _take_everything(self) -> None:
        """Without a group: every partition of every topic, those that go on where they are included."""
        topics = self._network.metadata.topics
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

    def _look_for_missing_topics(self) -> None:
        """Those that are not usable yet are asked for again; one that is refused for good is told once per answer."""
        metadata = self._network.metadata
        missing = [name for name in self._topics if name not in metadata.topics]
        if not missing:
            return
        self._look_again()
        if metadata is self._complained_of:
            return
        for name in missing:
            code = metadata.errors.get(name, ErrorCode.NONE)
            if code in REFUSED_FOR_GOOD:
                self._complained_of = metadata
                raise KafkaError(code, name)

    def _look_again(self) -> None:
        if self._again is None:
            self._again = asyncio.get_running_loop().call_later(MISSING_TOPIC_REFRESH_S, self._refresh)

    def _refresh(self) -> None:
        self._again = None
        self._network.request_refresh()

    # positions

    async def _begin(self) -> None:
        """Set every position that is not set yet: where the group is, or where the reset policy says."""
        todo = [progress.partition for progress in self._assignment if progress.position == UNKNOWN]
        committed = await self._session.committed(todo) if self._session is not None else {}
        fresh: list[TopicPartition] = []
        for partition in todo:
            if self._session is not None and partition not in committed:
                # A transaction that is still open may be about to commit another one.
                self._look_again()
                continue
            offset = committed.get(partition, UNKNOWN)
            gate = self._gatekeeper.gate(partition.topic)
            if gate is not None and self._session is not None:
                gate.note_committed(partition.partition, offset)
            if offset == UNKNOWN:
                fresh.append(partition)
            elif self._needs_position(partition):
                self._assignment[partition].begin(offset, committed=offset)
        starts = await self._resets.find(self._network, fresh, await self._read_before(fresh, committed))
        starts = {partition: offset for partition, offset in starts.items() if self._needs_position(partition)}
        for partition, offset in starts.items():
            self._assignment[partition].begin(offset)
        known = self._network.metadata
        self._assignment.begun = not any(
            self._needs_position(partition) and known.partition(*partition) is not None for partition in todo
        )
        self._handover.note_starts(starts)
        self._on_positions()

    def _needs_position(self, partition: TopicPartition) -> bool:
        """Not if the application has sought one meanwhile."""
        progress = self._assignment.get(partition)
        return progress is not None and progress.position == UNKNOWN

    async def _read_before(self, fresh: Sequence[TopicPartition], committed: Mapping[TopicPartition, int]) -> set[str]:
        """R20: the topics of `fresh` that this group, or this consumer, has been reading."""
        known = {progress.partition.topic for progress in self._assignment if progress.position != UNKNOWN}
        known |= {partition.topic for partition, offset in committed.items() if offset != UNKNOWN}
        if self._session is None:
            return known
        # Whoever is given children only knows nothing of the group's commits elsewhere in the topic.
        metadata = self._network.metadata
        others = [
            TopicPartition(name, index)
            for name in sorted({partition.topic for partition in fresh} - known)
            if name in metadata.topics and metadata.topics[name].generation != NO_GENERATION
            for index in metadata.topics[name].partitions
        ]
        elsewhere = await self._session.committed(others)
        read = {partition.topic for partition, offset in elsewhere.items() if offset != UNKNOWN}
        return known | read | {partition.topic for partition in others if partition not in elsewhere}

    async def _reset(self) -> None:
        """Positions that the leader has nothing at, once everything fetched before is handed out."""
        lost = [progress.partition for progress in self._assignment if progress.must_reset]
        for partition, offset in (await self._resets.find(self._network, lost, set())).items():
            progress = self._assignment.get(partition)
            if progress is not None and progress.must_reset:
                log.warning("%s: offset %d is out of range, going on at %d", partition, progress.position, offset)
                progress.begin(offset, committed=progress.committed)
