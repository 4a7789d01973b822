"""Queries the inputs of closed gates: key epoch ends, and the group's committed offsets.

Leaders with at least the cut's epoch report the ends (rule R7): one that has not adopted the cut refuses, and the query
is repeated. Long polls at the coordinator await committed offsets for all closed gates (`progress_watch`), so a
hand-off takes as long as the commit that opens it (K616). Neither decides anything: the results go to `Gates`, and the
consumer is notified of news.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Final

from anabranch.clients.consumer.classic_group_session import ClassicGroupSession
from anabranch.clients.consumer.gate import TopicGate
from anabranch.clients.consumer.log_start_watch import LogStartWatch
from anabranch.clients.consumer.progress_watch import ProgressWatch
from anabranch.clients.consumer.topic_gates import Gates
from anabranch.clients.metadata import NO_LEADER, ClusterMetadata
from anabranch.clients.network import GROUP, Network
from anabranch.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.lineage import KeyEpoch
from anabranch.protocol.order_gates import UNKNOWN
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

ENDS_TIMEOUT_MS: Final = 5000
RETRY_BACKOFF_S: Final = 0.05


class GateWatcher:
    """Runs the queries for one consumer's gates."""

    def __init__(
        self,
        network: Network,
        gates: Gates,
        session: ClassicGroupSession | None,
        wakeup: asyncio.Event,
        log_starts: LogStartWatch | None = None,
    ) -> None:
        self._network = network
        self._gates = gates
        self._wakeup = wakeup
        self._ends_requested = asyncio.Event()
        self._query_task: asyncio.Task[None] | None = None
        self._watch = None if session is None else ProgressWatch(session, self._awaited_offsets, self._on_progress)
        self._log_starts = log_starts
        self._failure: BaseException | None = None

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the queries, if any."""
        return self._failure or (None if self._watch is None else self._watch.failure)

    def start(self) -> None:
        """Start the queries."""
        self._query_task = asyncio.create_task(self._query_repeatedly(), name="gates: ends")
        self._query_task.add_done_callback(self._on_done)

    async def close(self) -> None:
        """Stop the queries."""
        if self._watch is not None:
            await self._watch.close()
        if self._log_starts is not None:
            await self._log_starts.close()
        if self._query_task is not None:
            self._query_task.cancel()
            await asyncio.gather(self._query_task, return_exceptions=True)

    def refresh(self) -> None:
        """Send the queries that gates requested since the last call."""
        if self._gates.outdated:
            self._gates.outdated = False
            self._network.request_refresh()
        if self._gates.closed and self._log_starts is not None:
            self._log_starts.schedule()
        if self._gates.asks:
            self._gates.asks = False
            if self._gates.requested_ends:
                self._ends_requested.set()
            self.watch()

    def watch(self) -> None:
        """Watch the group while the membership is stable."""
        if self._watch is not None:
            self._watch.refresh()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._failure = task.exception()
            self._wakeup.set()

    async def _query_repeatedly(self) -> None:
        while True:
            await self._ends_requested.wait()
            self._ends_requested.clear()
            again = await self._ask_ends()
            self._wakeup.set()
            if again:
                await asyncio.sleep(RETRY_BACKOFF_S)
                self._ends_requested.set()

    async def _ask_ends(self) -> bool:
        """Query leaders for the wanted ends; return whether to retry later.

        A response identifies the partition, not the requested epoch: each request has one query per partition.
        """
        metadata = self._network.metadata
        rounds: Counter[TopicPartition] = Counter()
        requests: dict[tuple[int, int], dict[str, list[tuple[KeyEpoch, OffsetForLeaderPartition]]]] = {}
        for topic, key_epoch in sorted(self._gates.requested_ends):
            gate = self._gates.gate(topic)
            cut = gate.cut(key_epoch) if gate is not None else None
            partition = metadata.partition(topic, key_epoch.partition)
            if partition is None and (gate is None or _is_current(metadata, topic, gate)):
                self._gates.drop_end(topic, key_epoch)
                continue
            if (
                partition is None
                or cut is None
                or partition.leader_epoch < cut
                or metadata.leader(topic, partition.index) == NO_LEADER
            ):
                self._network.request_refresh()
                continue
            question = OffsetForLeaderPartition(
                partition=key_epoch.partition, current_leader_epoch=partition.leader_epoch, leader_epoch=cut - 1
            )
            place = TopicPartition(topic, key_epoch.partition)
            requests.setdefault((partition.leader, rounds[place]), {}).setdefault(topic, []).append(
                (key_epoch, question)
            )
            rounds[place] += 1
        # All in parallel: an unresponsive leader must not delay the others.
        await asyncio.gather(*(self._ask_leader(leader, questions) for (leader, _), questions in requests.items()))
        return bool(self._gates.requested_ends)

    async def _ask_leader(
        self, leader: int, questions: Mapping[str, list[tuple[KeyEpoch, OffsetForLeaderPartition]]]
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
            log.debug("ends of key epochs, from node %d: %s", leader, error)
            self._network.request_refresh()
            return
        answers = {(topic.topic, row.partition): row for topic in response.topics for row in topic.partitions}
        for topic, key_epoch, question in (
            (topic, key_epoch, question) for topic, rows in questions.items() for key_epoch, question in rows
        ):
            row = answers.get((topic, question.partition))
            if row is None or row.error_code != ErrorCode.NONE or row.end_offset == UNKNOWN:
                self._network.request_refresh()
                continue
            epoch = question.current_leader_epoch
            if self._gates.note_end(topic, key_epoch, row.end_offset, leader_epoch=epoch):
                log.info("%s-%s ends at %d", topic, key_epoch, row.end_offset)
                self.watch()

    def _awaited_offsets(self) -> dict[TopicPartition, int] | None:
        """Return the offsets that closed gates wait for; None in a group whose topics have no gates."""
        return self._gates.awaited_offsets() if self._gates else None

    def _on_progress(self, positions: Mapping[TopicPartition, int]) -> None:
        self._gates.note_committed(positions)
        self._wakeup.set()


def _is_current(metadata: ClusterMetadata, topic: str, gate: TopicGate) -> bool:
    """Whether the metadata is not older than a gate. A broker that has just started may not know the topic yet."""
    known = metadata.topics.get(topic)
    return known is not None and known.lineage is not None and known.lineage.generation >= gate.lineage.generation
