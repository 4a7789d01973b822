"""Finds out what the gates need to know: where segments end, and how far the group has committed.

Ends are asked of the partitions' leaders, at least as new as the cut (rule R7): a leader that has not adopted the cut
refuses, and is asked again. Committed offsets are awaited at the coordinator by long polls for all closed gates
(`progress_watch`), so that a hand-off takes as long as the commit that opens it (K616). Neither decides anything:
answers are noted in the `TopicGate`s, and somebody is told that something changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from anabranch.clients.consumer.gate import UNKNOWN, PartitionView, TopicGate, Wait
from anabranch.clients.consumer.group_session import GroupSession
from anabranch.clients.consumer.progress_watch import ProgressWatch
from anabranch.clients.durations import Durations
from anabranch.clients.metadata import ClusterMetadata
from anabranch.clients.network import GROUP, Network
from anabranch.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.lineage import Segment
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

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
        self._asking: asyncio.Task[None] | None = None
        self._watch = None if session is None else ProgressWatch(session, self._awaited, self._progressed)
        self._failure: BaseException | None = None
        self._topic_ids: dict[str, bytes] = {}
        self._end_listening = network.on_metadata(self._refresh)
        self._refresh(network.metadata)

    @property
    def failure(self) -> BaseException | None:
        """Why nothing is asked any more, if that should ever happen."""
        return self._failure or (None if self._watch is None else self._watch.failure)

    def start(self) -> None:
        """Begin to ask."""
        self._asking = asyncio.create_task(self._keep_asking(), name="gates: ends")
        self._asking.add_done_callback(self._ended)

    async def close(self) -> None:
        """Stop asking."""
        self._end_listening()
        if self._watch is not None:
            await self._watch.close()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def watch(self) -> None:
        """The membership stands: watch the group, for as long as it does."""
        if self._watch is not None:
            self._watch.look()

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
            self.watch()
        for wait in gate.waits(segment):
            if wait.end == UNKNOWN:
                self.want_end(topic, wait.segment)
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
            self._failure = task.exception()
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

    async def _keep_asking(self) -> None:
        while True:
            await self._ends_news.wait()
            self._ends_news.clear()
            again = await self._ask_ends()
            self._on_change()
            if again:
                await asyncio.sleep(RETRY_BACKOFF_S)
                self._ends_news.set()

    async def _ask_ends(self) -> bool:
        """Ask the leaders for the ends wanted; whether to try again a little later.

        An answer names its partition, not the epoch that was asked for: each request has one question per partition.
        """
        metadata = self._network.metadata
        rounds: Counter[TopicPartition] = Counter()
        requests: dict[tuple[int, int], dict[str, list[tuple[Segment, OffsetForLeaderPartition]]]] = {}
        for topic, segment in sorted(self._ends_wanted):
            gate = self._gates.get(topic)
            cut = gate.cut(segment) if gate is not None else None
            partition = metadata.partition(topic, segment.partition)
            if partition is None:
                # Gone, and so is whoever waited for it; who still needs to know will say so again.
                self._ends_wanted.discard((topic, segment))
                continue
            if cut is None or partition.leader_epoch < cut or partition.leader not in metadata.nodes:
                self._network.request_refresh()
                continue
            question = OffsetForLeaderPartition(
                partition=segment.partition, current_leader_epoch=partition.leader_epoch, leader_epoch=cut - 1
            )
            place = TopicPartition(topic, segment.partition)
            requests.setdefault((partition.leader, rounds[place]), {}).setdefault(topic, []).append((segment, question))
            rounds[place] += 1
        # All at once: a leader that does not answer must not hold up the others.
        await asyncio.gather(*(self._ask_leader(leader, questions) for (leader, _), questions in requests.items()))
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
                leader, request, channel=GROUP, timeout_ms=ENDS_TIMEOUT_MS
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
            self.watch()

    def _awaited(self) -> dict[TopicPartition, int] | None:
        """What closed gates wait for, as far as it is known; None in a group whose topics have no gates."""
        if not self._gates:
            return None
        awaited: dict[TopicPartition, int] = {}
        for topic, segment in self._closed:
            for wait in self._gates[topic].waits(segment):
                if wait.end != UNKNOWN:
                    partition = TopicPartition(topic, wait.segment.partition)
                    awaited[partition] = min(wait.end, awaited.get(partition, wait.end))
        return awaited

    def _progressed(self, positions: Mapping[TopicPartition, int]) -> None:
        for reported, offset in positions.items():
            gate = self._gates.get(reported.topic)
            if gate is not None:
                gate.note_committed(reported.partition, offset)
        self._on_change()
