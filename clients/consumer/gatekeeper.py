"""Finds out what the gates need to know: where segments end, and how far the group has committed.

Two long-lived tasks, because the two questions wait for different things. Ends are asked of the partitions' leaders, at
least as new as the cut (rule R7): a leader that has not adopted the cut refuses, and is asked again. Committed offsets
are awaited at the coordinator by one long poll for all closed gates, so that a hand-off takes as long as the commit
that opens it (F16). Neither decides anything: both note answers in the `TopicGate`s and say that something changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from clients.consumer.gate import UNKNOWN, PartitionView, TopicGate, Wait
from clients.consumer.session import GroupSession
from clients.durations import Durations
from clients.metadata import ClusterMetadata
from clients.network import POSITIONS, Network
from protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.lineage import Segment
from protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

POSITIONS_WAIT_MS: Final = 1000
ENDS_TIMEOUT_MS: Final = 5000
RETRY_BACKOFF_S: Final = 0.05
OPENINGS_KEPT: Final = 1000


@dataclass(frozen=True, slots=True)
class GateView:
    """A closed gate as a person wants to see it."""

    topic: str
    segment: Segment
    waits: tuple[Wait, ...]
    closed_since_s: float
    """Loop time at which it was first found closed."""

    def __str__(self) -> str:
        reasons = "; ".join(str(wait) for wait in self.waits)
        return f"{self.topic}-{self.segment} waits for {reasons}"


@dataclass(frozen=True, slots=True)
class GateOpening:
    """A gate that was closed and has opened; loop times."""

    topic: str
    segment: Segment
    closed_at_s: float
    opened_at_s: float


class Gatekeeper:
    """The gates of all topics of one consumer."""

    def __init__(
        self, network: Network, session: GroupSession | None, on_change: Callable[[], None], *, ordered: bool
    ) -> None:
        self._ordered = ordered
        self._loop = asyncio.get_running_loop()
        self._network = network
        self._session = session
        self._on_change = on_change
        self._gates: dict[str, TopicGate] = {}
        self._closed: dict[tuple[str, Segment], float] = {}
        self.openings: deque[GateOpening] = deque(maxlen=OPENINGS_KEPT)
        """The gates that have opened lately, oldest first."""
        self.handoffs = Durations()
        """All that have opened."""
        self._ends_wanted: set[tuple[str, Segment]] = set()
        self._ends_news = asyncio.Event()
        self._positions_news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.failure: BaseException | None = None
        """Why nothing is asked any more, if that should ever happen."""
        self._topic_ids: dict[str, bytes] = {}
        self._end_listening = network.on_metadata(self._refresh)
        self._refresh(network.metadata)

    def start(self) -> None:
        """Begin to ask."""
        self._tasks.append(asyncio.create_task(self._run(self._ends_news, self._ask_ends), name="gates: ends"))
        if self._session is not None:
            positions = self._run(self._positions_news, self._ask_positions)
            self._tasks.append(asyncio.create_task(positions, name="gates: positions"))
        for task in self._tasks:
            task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Stop asking."""
        self._end_listening()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def gate(self, topic: str) -> TopicGate | None:
        """The gate of a topic; None where Kafka's own rules apply."""
        return self._gates.get(topic)

    def views(self) -> list[GateView]:
        """Every closed gate with its reasons."""
        return [
            GateView(topic, segment, tuple(self._gates[topic].waits(segment)), since)
            for (topic, segment), since in sorted(self._closed.items())
            if topic in self._gates
        ]

    def passes(self, topic: str, segment: Segment) -> bool:
        """Whether a segment is open; a closed one is watched from now on until it opens."""
        gate = self._gates[topic]
        if gate.is_open(segment):
            closed_at = self._closed.pop((topic, segment), None)
            if closed_at is not None:
                opening = GateOpening(topic, segment, closed_at, self._loop.time())
                self.openings.append(opening)
                self.handoffs.record(opening.opened_at_s - closed_at)
                log.info("%s-%s opened after %.3f s", topic, segment, opening.opened_at_s - closed_at)
            return True
        if (topic, segment) not in self._closed:
            self._closed[topic, segment] = self._loop.time()
            log.info("%s-%s waits for %s", topic, segment, "; ".join(map(str, gate.waits(segment))))
        for wait in gate.waits(segment):
            if wait.end == UNKNOWN:
                self.want_end(topic, wait.segment)
        self._positions_news.set()
        return False

    def want_end(self, topic: str, segment: Segment) -> None:
        """Ask where a segment ends."""
        if (topic, segment) not in self._ends_wanted:
            self._ends_wanted.add((topic, segment))
            self._ends_news.set()

    def forget(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Gates that others watch now, or that a seek has left behind, are no longer ours; None: all of them."""
        if partitions is not None:
            self._drop(set(partitions))
            return
        self._closed.clear()
        self._ends_wanted.clear()

    def _partitions_watched(self, topic: str) -> set[TopicPartition]:
        watched = self._closed.keys() | self._ends_wanted
        return {TopicPartition(name, segment.partition) for name, segment in watched if name == topic}

    def _drop(self, partitions: set[TopicPartition]) -> None:
        for one in [one for one in self._closed if (one[0], one[1].partition) in partitions]:
            del self._closed[one]
        self._ends_wanted -= {one for one in self._ends_wanted if (one[0], one[1].partition) in partitions}

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self.failure = task.exception()
            self._on_change()

    def _refresh(self, metadata: ClusterMetadata) -> None:
        for name, topic in metadata.topics.items():
            gated = topic.lineage is not None and topic.gated
            if self._topic_ids.get(name, topic.topic_id) != topic.topic_id or not gated:
                # Another topic of the same name, or one that is to be read without order: nothing known holds.
                self._gates.pop(name, None)
                self._drop(self._partitions_watched(name))
            self._topic_ids[name] = topic.topic_id
            if topic.lineage is None or not topic.gated or not self._ordered:
                continue
            views = {index: PartitionView(one.leader_epoch, one.gen_start) for index, one in topic.partitions.items()}
            known = self._gates.get(name)
            if known is None:
                self._gates[name] = TopicGate(topic.lineage, views)
            else:
                known.refresh(topic.lineage, views)
        self._on_change()

    async def _run(self, news: asyncio.Event, ask: Callable[[], object]) -> None:
        while True:
            await news.wait()
            news.clear()
            try:
                again = await ask()  # type: ignore[misc]
            except (ConnectionError, TimeoutError, KafkaError) as error:
                log.debug("gates: %s", error)
                again = True
            self._on_change()
            if again:
                await asyncio.sleep(RETRY_BACKOFF_S)
                news.set()

    async def _ask_ends(self) -> bool:
        """Ask the leaders for the ends wanted; whether to try again a little later.

        One end per partition at a time: an answer names its partition and not the epoch that was asked for.
        """
        metadata = self._network.metadata
        asked: set[TopicPartition] = set()
        by_leader: dict[int, dict[str, list[tuple[Segment, OffsetForLeaderPartition]]]] = {}
        for topic, segment in sorted(self._ends_wanted):
            gate = self._gates.get(topic)
            cut = gate.cut(segment) if gate is not None else None
            partition = metadata.partition(topic, segment.partition)
            if partition is None:
                # Gone, and so is whoever waited for it; who still needs to know will say so again.
                self._ends_wanted.discard((topic, segment))
                continue
            if (topic, segment.partition) in asked:
                continue
            if cut is None or partition.leader_epoch < cut or partition.leader not in metadata.nodes:
                self._network.request_refresh()
                continue
            question = OffsetForLeaderPartition(
                partition=segment.partition, current_leader_epoch=partition.leader_epoch, leader_epoch=cut - 1
            )
            by_leader.setdefault(partition.leader, {}).setdefault(topic, []).append((segment, question))
            asked.add(TopicPartition(topic, segment.partition))
        before = len(self._ends_wanted)
        # All at once: a leader that does not answer must not hold up the others.
        await asyncio.gather(*(self._ask_leader(leader, questions) for leader, questions in by_leader.items()))
        if self._ends_wanted and len(self._ends_wanted) < before:
            self._ends_news.set()
            return False
        return bool(self._ends_wanted)

    async def _ask_leader(
        self, leader: int, questions: Mapping[str, list[tuple[Segment, OffsetForLeaderPartition]]]
    ) -> None:
        request = OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderTopic(topic=topic, partitions=[question for _, question in rows])
                for topic, rows in questions.items()
            ],
        )
        try:
            response: OffsetForLeaderEpochResponse = await self._network.call(
                leader, request, channel=POSITIONS, timeout_ms=ENDS_TIMEOUT_MS
            )
        except (ConnectionError, TimeoutError, KafkaError) as error:
            log.debug("ends of segments, from node %d: %s", leader, error)
            self._network.request_refresh()
            return
        answers = {(topic.topic, row.partition): row for topic in response.topics for row in topic.partitions}
        for topic, segment, question in (
            (topic, segment, question) for topic, rows in questions.items() for segment, question in rows
        ):
            row = answers.get((topic, question.partition))
            if row is None or row.error_code != ErrorCode.NONE or row.end_offset == UNKNOWN:
                self._network.request_refresh()
                continue
            if (topic, segment) not in self._ends_wanted or topic not in self._gates:
                continue
            self._gates[topic].note_end(segment, row.end_offset, leader_epoch=question.current_leader_epoch)
            self._ends_wanted.discard((topic, segment))
            log.info("%s-%s ends at %d", topic, segment, row.end_offset)

    async def _ask_positions(self) -> bool:
        """One long poll for everything that closed gates wait for; whether gates are still closed."""
        awaited: dict[TopicPartition, int] = {}
        waits = [(topic, wait) for topic, segment in self._closed for wait in self._gates[topic].waits(segment)]
        for topic, wait in waits:
            if wait.end != UNKNOWN:
                partition = TopicPartition(topic, wait.segment.partition)
                awaited[partition] = min(wait.end, awaited.get(partition, wait.end))
        if not awaited:
            return bool(waits)
        assert self._session is not None, "only a member of a group awaits its positions"
        positions = await self._session.await_positions(awaited, max_wait_ms=POSITIONS_WAIT_MS)
        for reported, offset in positions.items():
            gate = self._gates.get(reported.topic)
            if gate is not None:
                gate.note_committed(reported.partition, offset)
        if not positions:
            return True
        if self._closed:
            self._positions_news.set()
        return False
