"""Fetches ahead: one long poll per node, for the partitions with free buffers.

Partitions that become fetchable later (assigned, sought, or with a free buffer again) do not wait for the end of the
long poll: while it is parked, short requests fetch them over another connection.

There is no task: a response, a new connection or a new assignment leads to the next request. Batches enter the
partitions' progress undecoded. Each request carries the leader epoch of the client's metadata, so a leader with a newer
epoch, or of a resized topic, returns an error (KIP-320, rule R12); that error refreshes the metadata, and the partition
is fetched again once they have another epoch. A consumer with a rack may be sent to a follower in it (`read_replica`).
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from anabranch.clients.consumer.assignment import Assignment
from anabranch.clients.consumer.offset_lookup import READ_UNCOMMITTED
from anabranch.clients.consumer.progress import PartitionProgress
from anabranch.clients.consumer.read_replica import ReadReplicas
from anabranch.clients.metadata import NO_LEADER, Partition, Topic
from anabranch.clients.network import DATA, MORE_DATA, Network
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from anabranch.protocol.errors import DecodeError, ErrorCode
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

REFUSED_BACKOFF_S: Final = 0.005
RETRY_BACKOFF_S: Final = 0.05
FETCH_BYTES_MAX: Final = 50 * 1024 * 1024
PARTITION_FETCH_BYTES_MAX: Final = 1024 * 1024
SHORT_WAIT_MS: Final = 20
"""Wait time of the second request to a node: the first one can soon include everything again."""
SHORT_WAIT_MAX_MS: Final = 80
"""The second request waits twice as long after each one that brought nothing, up to this."""
FENCED_RETRY_S: Final = 1.0
"""After this time a fenced epoch is tried again: clusters can be restored to an earlier state."""
PARKED_AFTER_MS: Final = 10
"""A longer request counts as parked at its node until there are records or its time is up."""


class _RequestInFlight(NamedTuple):
    offsets: Mapping[TopicPartition, int]
    sent_at_s: float


_Row = tuple[PartitionProgress, Topic, Partition]


class _Fence(NamedTuple):
    topic_id: bytes
    leader_epoch: int
    ends_at_s: float


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
        client_rack: str = "",
        replica_lease_ms: int = 300_000,
    ) -> None:
        self._network = network
        self._assignment = assignment
        self._max_wait_ms = max_wait_ms
        self._on_arrival = on_arrival
        self._isolation_level = isolation_level
        self._client_rack = client_rack
        self._read_replicas = ReadReplicas(replica_lease_ms / 1000)
        self._loop = asyncio.get_running_loop()
        self._in_flight: dict[tuple[int, int], _RequestInFlight] = {}
        self._resting: dict[TopicPartition, asyncio.TimerHandle] = {}
        self._refusals: Counter[TopicPartition] = Counter()
        """Consecutive errors per partition."""
        self._fences: dict[TopicPartition, _Fence] = {}
        """Epochs that a leader refused as too old: it would refuse another fetch with the same one, too."""
        self._short_waits_ms: dict[int, int] = {}
        """How long the next second request to a node waits."""
        self._soon: asyncio.TimerHandle | None = None
        self._closed = False
        network.on_connection(lambda node_id: self.poke())
        self._end_listening = network.on_metadata(lambda metadata: self.poke())

    def close(self) -> None:
        """Send no more requests; ignore pending responses."""
        self._closed = True
        self._end_listening()
        for alarm in self._resting.values():
            alarm.cancel()

    def poke(self) -> None:
        """Send each node a request for newly fetchable partitions that no pending request includes."""
        if self._closed:
            return
        for node_id, fetchable in self._by_node().items():
            first, second = self._in_flight.get((node_id, DATA)), self._in_flight.get((node_id, MORE_DATA))
            in_flight = [one.offsets for one in (first, second) if one is not None]
            rows = [row for row in fetchable if not any(_is_requested(row[0], offsets) for offsets in in_flight)]
            if not rows:
                continue
            if first is None:
                self._short_waits_ms.pop(node_id, None)
                self._ask(node_id, DATA, rows, self._max_wait_ms)
            elif second is None:
                # Round up to whole milliseconds: a fraction must not become repeated waits of zero.
                age_ms = round(1000 * (self._loop.time() - first.sent_at_s))
                if age_ms < PARKED_AFTER_MS:
                    self._poke_in(PARKED_AFTER_MS - age_ms)
                else:
                    wait_ms = self._short_waits_ms.get(node_id, SHORT_WAIT_MS)
                    self._ask(node_id, MORE_DATA, rows, min(wait_ms, self._max_wait_ms))

    def _poke_in(self, wait_ms: int) -> None:
        if self._soon is None:
            self._soon = self._loop.call_later(wait_ms / 1000, self._poke_now)

    def _poke_now(self) -> None:
        self._soon = None
        self.poke()

    def _ask(self, node_id: int, channel: int, rows: Sequence[_Row], wait_ms: int) -> None:
        connection = self._network.ready(node_id, channel=channel)
        if connection is None:
            return
        try:
            timeout_ms = self._max_wait_ms + self._network.config.request_timeout_ms
            answer = connection.send(self._request(rows, wait_ms), timeout_ms=timeout_ms)
        except ConnectionError as error:
            log.debug("fetch from node %d not sent: %s", node_id, error)
            return
        offsets = {row.partition: row.fetch_offset for row, _, _ in rows}
        self._in_flight[node_id, channel] = _RequestInFlight(offsets, self._loop.time())
        answer.add_done_callback(functools.partial(self._on_response, (node_id, channel), offsets, rows))

    def _by_node(self) -> dict[int, list[_Row]]:
        metadata, now_s = self._network.metadata, self._loop.time()
        rows: dict[int, list[_Row]] = {}
        for progress in self._assignment:
            if not progress.fetchable or progress.partition in self._resting:
                continue
            topic = metadata.topics.get(progress.partition.topic)
            partition = topic.partitions.get(progress.partition.partition) if topic is not None else None
            if (
                topic is None
                or partition is None
                or metadata.leader(*progress.partition) == NO_LEADER
                or self._is_fenced(progress.partition, topic, partition, now_s)
            ):
                self._rest(progress.partition)
                self._network.request_refresh()
                continue
            node_id = self._read_replicas.node_for(progress.partition, partition, metadata.nodes, now_s)
            rows.setdefault(node_id, []).append((progress, topic, partition))
        return rows

    def _is_fenced(self, place: TopicPartition, topic: Topic, partition: Partition, now_s: float) -> bool:
        """Whether a leader has refused the epoch of the client's metadata."""
        fence = self._fences.get(place)
        return (
            fence is not None
            and fence.leader_epoch == partition.leader_epoch
            and fence.topic_id == topic.topic_id
            and now_s < fence.ends_at_s
        )

    def _request(self, rows: Sequence[_Row], max_wait_ms: int) -> FetchRequest:
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
            rack_id=self._client_rack,
        )

    def _on_response(
        self,
        place: tuple[int, int],
        requested: Mapping[TopicPartition, int],
        rows: Sequence[_Row],
        answer: asyncio.Future[FetchResponse],
    ) -> None:
        del self._in_flight[place]
        error = None if answer.cancelled() else answer.exception()
        if self._closed or answer.cancelled():
            return
        if error is not None:
            log.debug("fetch from node %d: %s", place[0], error)
            for partition in requested:
                self._read_replicas.forget(partition)
                self._rest(partition)
            self._network.request_refresh()
            return
        arrived = False
        names = {topic.topic_id: topic.name for topic in self._network.metadata.topics.values()}
        for topic in answer.result().responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                if data.error_code == ErrorCode.FENCED_LEADER_EPOCH:
                    self._fence(partition, rows)
                arrived |= self._take(partition, data, requested)
        node_id, channel = place
        if arrived:
            self._short_waits_ms.pop(node_id, None)
            self._on_arrival()
        elif channel == MORE_DATA:
            self._short_waits_ms[node_id] = min(2 * self._short_waits_ms.get(node_id, SHORT_WAIT_MS), SHORT_WAIT_MAX_MS)
        self.poke()

    def _take(self, partition: TopicPartition, data: PartitionData, requested: Mapping[TopicPartition, int]) -> bool:
        progress = self._assignment.get(partition)
        if progress is None or partition not in requested:
            return False
        code = ErrorCode(data.error_code)
        if code is ErrorCode.NONE:
            self._refusals.pop(partition, None)
            self._fences.pop(partition, None)
            if data.preferred_read_replica >= 0:
                self._prefer(partition, data.preferred_read_replica)
            committed_only = self._isolation_level != READ_UNCOMMITTED
            if progress.note_ends(
                high_watermark=data.high_watermark,
                last_stable_offset=data.last_stable_offset,
                committed_only=committed_only,
            ):
                self._on_arrival()  # records that are read together with this partition may have waited for its end
            moved = progress.note_log_start(data.log_start_offset)
            aborted = data.aborted_transactions or () if committed_only else ()
            try:
                taken = progress.receive(data.records, requested[partition], aborted) if data.records else 0
                return taken > 0 or moved
            except DecodeError as error:
                log.warning("malformed records from the leader of %s: %s", partition, error)
                self._rest(partition)
                return False
        at_follower = self._read_replicas.forget(partition)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and not at_follower:
            return progress.note_out_of_range(requested[partition])
        log.debug("fetch of %s: %s", partition, code.name)
        self._rest(partition)
        self._network.request_refresh()
        if code is ErrorCode.CORRUPT_MESSAGE and not at_follower:
            return progress.note_damage(requested[partition])
        return progress.damaged

    def _fence(self, place: TopicPartition, rows: Sequence[_Row]) -> None:
        """Note the epoch with which a partition was fetched, so that the next fetch waits for newer metadata."""
        for progress, topic, partition in rows:
            if progress.partition == place:
                ends_at_s = self._loop.time() + FENCED_RETRY_S
                self._fences[place] = _Fence(topic.topic_id, partition.leader_epoch, ends_at_s)

    def _prefer(self, partition: TopicPartition, node_id: int) -> None:
        """Fetch from a follower, once metadata has it in sync: the leader would otherwise name it again at once."""
        self._read_replicas.prefer(partition, node_id, self._loop.time())
        self._rest(partition)
        self._network.request_refresh()

    def _rest(self, partition: TopicPartition) -> None:
        """Pause a partition, longer after each consecutive error."""
        wait_s = min(REFUSED_BACKOFF_S * 2 ** self._refusals[partition], RETRY_BACKOFF_S)
        self._refusals[partition] = min(self._refusals[partition] + 1, 10)
        if partition in self._resting:
            self._resting[partition].cancel()
        self._resting[partition] = self._loop.call_later(wait_s, self._on_backoff_end, partition)

    def _on_backoff_end(self, partition: TopicPartition) -> None:
        """The timer decides, not the clock: one that fires slightly early would find nothing, and be the last."""
        del self._resting[partition]
        self.poke()


def _is_requested(progress: PartitionProgress, offsets: Mapping[TopicPartition, int]) -> bool:
    """Whether a request in flight fetches the partition's next offset."""
    return offsets.get(progress.partition) == progress.fetch_offset
