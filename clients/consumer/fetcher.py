"""Fetching ahead: at most one request per node, for the partitions that want more; a long poll if that is all of them.

No task runs here: an answer, a new connection or a new assignment leads to the next request. What comes back goes into
the partitions' progress undecoded. The leader epoch of our metadata travels with each request, so that a leader which
has moved on, or been resized, says so instead of answering (KIP-320, rule R12); that answer asks for fresh metadata.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from clients.consumer.offsets import READ_UNCOMMITTED
from clients.consumer.positions import Assignment, PartitionProgress
from clients.metadata import Partition, Topic
from clients.network import Network
from protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from protocol.errors import DecodeError, ErrorCode
from protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

RETRY_BACKOFF_S: Final = 0.05
FETCH_BYTES_MAX: Final = 50 * 1024 * 1024
PARTITION_FETCH_BYTES_MAX: Final = 1024 * 1024
SHORT_WAIT_MS: Final = 20
"""How long a fetch waits for data when a partition of its node is left out because its buffer is full: that one may
have room again any moment, and nothing else can be asked of the node meanwhile."""


class Fetcher:
    """Keeps the assigned partitions' buffers filled."""

    def __init__(
        self,
        network: Network,
        assignment: Assignment,
        *,
        max_wait_ms: int,
        on_arrival: Callable[[], None],
        isolation_level: int = READ_UNCOMMITTED,
    ) -> None:
        self._network = network
        self._assignment = assignment
        self._max_wait_ms = max_wait_ms
        self._on_arrival = on_arrival
        self._isolation_level = isolation_level
        self._loop = asyncio.get_running_loop()
        self._asking: dict[int, asyncio.Future[FetchResponse]] = {}
        self._resting: dict[TopicPartition, float] = {}
        self._closed = False
        network.on_connection(lambda node_id: self.poke())
        self._end_listening = network.on_metadata(lambda metadata: self.poke())

    def close(self) -> None:
        """Ask for nothing more; answers still to come are ignored."""
        self._closed = True
        self._end_listening()

    def poke(self) -> None:
        """Something may have become fetchable: ask every node that is not already being asked."""
        if self._closed:
            return
        crowded = self._crowded()
        for node_id, rows in self._by_leader().items():
            if node_id in self._asking:
                continue
            connection = self._network.ready(node_id)
            if connection is None:
                continue
            wait_ms = min(SHORT_WAIT_MS, self._max_wait_ms) if node_id in crowded else self._max_wait_ms
            try:
                answer = connection.send(self._request(rows, wait_ms), timeout_ms=self._max_wait_ms + 30_000)
            except ConnectionError as error:
                log.debug("fetch from node %d not sent: %s", node_id, error)
                continue
            self._asking[node_id] = answer
            asked = {row.partition: row.fetch_offset for row, _, _ in rows}
            answer.add_done_callback(functools.partial(self._answered, node_id, asked))

    def _crowded(self) -> set[int]:
        """The nodes that lead a partition which will want more as soon as it has room, or knows where to begin."""
        metadata = self._network.metadata
        return {
            metadata.leader(*progress.partition)
            for progress in self._assignment
            if not (progress.fetchable or progress.paused or progress.out_of_range)
        }

    def _by_leader(self) -> dict[int, list[tuple[PartitionProgress, Topic, Partition]]]:
        metadata, now = self._network.metadata, self._loop.time()
        rows: dict[int, list[tuple[PartitionProgress, Topic, Partition]]] = {}
        for progress in self._assignment:
            if not progress.fetchable or self._resting.get(progress.partition, 0.0) > now:
                continue
            topic = metadata.topics.get(progress.partition.topic)
            partition = topic.partitions.get(progress.partition.partition) if topic is not None else None
            if topic is None or partition is None or partition.leader not in metadata.nodes:
                self._rest(progress.partition)
                self._network.request_refresh()
                continue
            rows.setdefault(partition.leader, []).append((progress, topic, partition))
        return rows

    def _request(self, rows: Sequence[tuple[PartitionProgress, Topic, Partition]], max_wait_ms: int) -> FetchRequest:
        topics: dict[str, FetchTopic] = {}
        for progress, topic, partition in rows:
            entry = topics.get(topic.name)
            if entry is None:
                entry = topics[topic.name] = FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[])
            entry.partitions.append(
                FetchPartition(
                    partition=partition.index,
                    current_leader_epoch=partition.leader_epoch,
                    fetch_offset=progress.fetch_offset,
                    partition_max_bytes=PARTITION_FETCH_BYTES_MAX,
                )
            )
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=self._isolation_level,
            topics=list(topics.values()),
        )

    def _answered(
        self, node_id: int, asked: Mapping[TopicPartition, int], answer: asyncio.Future[FetchResponse]
    ) -> None:
        del self._asking[node_id]
        error = None if answer.cancelled() else answer.exception()
        if self._closed or answer.cancelled():
            return
        if error is not None:
            log.debug("fetch from node %d: %s", node_id, error)
            for partition in asked:
                self._rest(partition)
            self._network.request_refresh()
            return
        arrived = False
        names = {topic.topic_id: topic.name for topic in self._network.metadata.topics.values()}
        for topic in answer.result().responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                arrived |= self._take(TopicPartition(name, data.partition_index), data, asked)
        if arrived:
            self._on_arrival()
        self.poke()

    def _take(self, partition: TopicPartition, data: PartitionData, asked: Mapping[TopicPartition, int]) -> bool:
        progress = self._assignment.get(partition)
        if progress is None or partition not in asked:
            return False
        code = ErrorCode(data.error_code)
        if code is ErrorCode.NONE:
            progress.high_watermark = data.high_watermark
            progress.last_stable_offset = data.last_stable_offset
            aborted = data.aborted_transactions or () if self._isolation_level != READ_UNCOMMITTED else ()
            try:
                return bool(data.records) and progress.receive(data.records or b"", asked[partition], aborted) > 0
            except DecodeError as error:
                log.warning("what the leader of %s sent makes no sense: %s", partition, error)
                self._rest(partition)
                return False
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            progress.out_of_range = progress.fetch_offset == asked[partition]
            return progress.out_of_range
        log.debug("fetch of %s: %s", partition, code.name)
        self._rest(partition)
        self._network.request_refresh()
        return False

    def _rest(self, partition: TopicPartition) -> None:
        """Leave a partition alone for a moment, so that a refusal is not asked for again at once."""
        self._resting[partition] = self._loop.time() + RETRY_BACKOFF_S
        self._loop.call_later(RETRY_BACKOFF_S, self.poke)
