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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from clients.consumer.gate import UNKNOWN, PartitionView, TopicGate, Wait
from clients.consumer.session import GroupSession
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
        self._ends_wanted: set[tuple[str, Segment]] = set()
        self._ends_news = asyncio.Event()
        self._positions_news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._end_listening = network.on_metadata(self._refresh)
        self._refresh(network.metadata)

    def start(self) -> None:
        """Begin to ask."""
        self._tasks.append(asyncio.create_task(self._run(self._ends_news, self._ask_ends), name="gates: ends"))
        if self._session is not None:
            positions = self._run(self._positions_news, self._ask_positions)
            self._tasks.append(asyncio.create_task(positions, name="gates: positions"))

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

    def forget(self) -> None:
        """A new assignment: gates that others watch now are no longer ours."""
        self._closed.clear()
        self._ends_wanted.clear()

    def _refresh(self, metadata: ClusterMetadata) -> None:
        for name, topic in metadata.topics.items():
            if topic.lineage is None or not self._ordered:
                self._gates.pop(name, None)
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
        """Ask the leaders for every end wanted; whether some are still unknown."""
        metadata = self._network.metadata
        by_leader: dict[int, dict[str, list[tuple[Segment, OffsetForLeaderPartition]]]] = {}
        for topic, segment in sorted(self._ends_wanted):
            gate = self._gates.get(topic)
            cut = gate.cut(segment) if gate is not None else None
            partition = metadata.partition(topic, segment.partition)
            if partition is None or cut is None or partition.leader_epoch < cut:
                self._network.request_refresh()
                continue
            question = OffsetForLeaderPartition(
                partition=segment.partition, current_leader_epoch=partition.leader_epoch, leader_epoch=cut - 1
            )
            by_leader.setdefault(partition.leader, {}).setdefault(topic, []).append((segment, question))
        for leader, questions in by_leader.items():
            await self._ask_leader(leader, questions)
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
            response: OffsetForLeaderEpochResponse = await self._network.call(leader, request, channel=POSITIONS)
        except (ConnectionError, TimeoutError):
            self._network.request_refresh()
            raise
        asked = {
            (topic, question.partition, question.leader_epoch): (segment, question.current_leader_epoch)
            for topic, rows in questions.items()
            for segment, question in rows
        }
        answers = {(topic.topic, row.partition): row for topic in response.topics for row in topic.partitions}
        for (topic, index, _), (segment, epoch) in asked.items():
            row = answers.get((topic, index))
            if row is None or row.error_code != ErrorCode.NONE or row.end_offset == UNKNOWN:
                self._network.request_refresh()
                continue
            self._gates[topic].note_end(segment, row.end_offset, leader_epoch=epoch)
            self._ends_wanted.discard((topic, segment))
            log.info("%s-%s ends at %d", topic, segment, row.end_offset)

    async def _ask_positions(self) -> bool:
        """One long poll for everything that closed gates wait for; whether gates are still closed."""
        awaited: dict[TopicPartition, int] = {}
        for topic, segment in list(self._closed):
            for wait in self._gates[topic].waits(segment):
                if wait.end != UNKNOWN:
                    partition = TopicPartition(topic, wait.segment.partition)
                    awaited[partition] = min(wait.end, awaited.get(partition, wait.end))
        if not awaited:
            return any(self._gates[topic].waits(segment) for topic, segment in list(self._closed))
        assert self._session is not None, "only a member of a group awaits its positions"
        positions = await self._session.await_positions(awaited, max_wait_ms=POSITIONS_WAIT_MS)
        for reported, offset in positions.items():
            self._gates[reported.topic].note_committed(reported.partition, offset)
        if not positions:
            return True
        if self._closed:
            self._positions_news.set()
        return False
