"""Prefetching from a scripted peer; epochs and refusals in requests (R12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from anabranch.clients.config import NetworkConfig
from anabranch.clients.consumer import fetcher
from anabranch.clients.consumer.assignment import Assignment
from anabranch.clients.consumer.fetcher import Fetcher
from anabranch.clients.consumer.progress import PartitionProgress
from anabranch.clients.network import Network, make_rng
from anabranch.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from anabranch.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition
from tests.clients.consumer.test_progress import batch
from tests.clients.peer import Peer, serve

WHERE = TopicPartition("t", 0)
TOPIC_ID = b"t" * 16
Answer = Callable[[int], PartitionData | None]
"""What the peer says to a fetch from an offset; None: nothing new for now."""


class World:
    """One partition, one peer, one fetcher; `epoch` is the peer's metadata."""

    def __init__(self, answer: Answer, parked: asyncio.Event | None = None) -> None:
        self.answer = answer
        self.parked = parked
        """If given, the first fetch is held until this is set."""
        self.epoch = 3
        self.fetches: list[tuple[int, int]] = []
        self.waits_ms: list[int] = []
        self.arrived = asyncio.Event()
        self.assignment = Assignment()
        self.peer: Peer
        self.fetcher: Fetcher

    @property
    def progress(self) -> PartitionProgress:
        return self.assignment[WHERE]

    async def respond(self, body: Any) -> Any:
        if not isinstance(body, FetchRequest):
            return self.metadata()
        row = body.topics[0].partitions[0]
        self.waits_ms.append(body.max_wait_ms)
        self.fetches.append((row.fetch_offset, row.current_leader_epoch))
        if self.parked is not None and len(self.fetches) == 1:
            await self.parked.wait()
            return FetchResponse(responses=[])
        data = self.answer(row.fetch_offset)
        if data is None:
            await asyncio.sleep(0.05)
            data = PartitionData(partition_index=0, error_code=0, high_watermark=0, records=b"")
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[data])])

    def metadata(self) -> MetadataResponse:
        partition = MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=1,
            leader_epoch=self.epoch,
            replica_nodes=[1],
            isr_nodes=[1],
            offline_replicas=[],
        )
        other = replace(partition, partition_index=1)
        topic = MetadataResponseTopic(
            error_code=0, name="t", topic_id=TOPIC_ID, is_internal=False, partitions=[partition, other]
        )
        broker = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.peer.port, rack=None)
        return MetadataResponse(brokers=[broker], cluster_id="c", controller_id=1, topics=[topic])

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 -- what fetches leave behind has no event
                await asyncio.sleep(0.002)


@asynccontextmanager
async def world(
    answer: Answer, parked: asyncio.Event | None = None, *, request_timeout_ms: int = 30_000
) -> AsyncIterator[World]:
    one = World(answer, parked)
    async with serve(one.respond) as peer:
        one.peer = peer
        config = NetworkConfig(bootstrap_servers=(("127.0.0.1", peer.port),), request_timeout_ms=request_timeout_ms)
        network = Network(config, make_rng(None))
        network.follow("t")
        await network.start()
        one.assignment.replace([WHERE])
        one.progress.begin(0)
        one.fetcher = Fetcher(network, one.assignment, max_wait_ms=50, on_arrival=one.arrived.set)
        one.fetcher.poke()
        try:
            yield one
        finally:
            one.fetcher.close()
            await network.close()


def found(base: int, count: int = 2) -> PartitionData:
    records = batch(base, [b"%d" % (base + n) for n in range(count)])
    return PartitionData(partition_index=0, error_code=0, high_watermark=base + count, records=records)


def refused(code: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=0, error_code=code, high_watermark=-1, records=b"")


async def test_fetch_continues_at_end_of_previous_response() -> None:
    async with world(lambda offset: found(offset) if offset < 6 else None) as one:
        await one.until(lambda: len(one.fetches) >= 4)
        assert [offset for offset, _ in one.fetches[:4]] == [0, 2, 4, 6]
        assert [record.offset for _ in range(3) for record in one.progress.take(5)] == list(range(6))
        assert one.progress.high_watermark in (0, 6)


async def test_first_response_without_records_is_news() -> None:
    """Records of another partition may have waited for it."""
    async with world(lambda offset: None) as one:
        await one.until(one.arrived.is_set)
        one.arrived.clear()
        await one.until(lambda: len(one.fetches) >= 3)
        assert not one.arrived.is_set(), "the next ones are none"


async def test_unanswered_fetch_is_sent_again_after_request_timeout() -> None:
    async with world(found, parked=asyncio.Event(), request_timeout_ms=200) as one:
        async with asyncio.timeout(20):
            await one.arrived.wait()
        assert [offset for offset, _ in one.fetches[:2]] == [0, 0]


async def test_r12_fetch_sends_leader_epoch_and_fencing_refreshes_it() -> None:
    def answer(offset: int) -> PartitionData | None:
        if one.fetches[-1][1] < 4:
            one.epoch = 4
            return refused(ErrorCode.FENCED_LEADER_EPOCH)
        return found(0) if offset == 0 else None

    async with world(answer) as one:
        await one.until(lambda: one.progress.buffered)
        assert {epoch for _, epoch in one.fetches} == {3, 4}
        assert one.fetches[0] == (0, 3)


async def test_r12_fenced_epoch_is_not_fetched_again_while_metadata_is_old() -> None:
    def answer(offset: int) -> PartitionData | None:
        if one.fetches[-1][1] < 4:
            return refused(ErrorCode.FENCED_LEADER_EPOCH)
        return found(0) if offset == 0 else None

    def metadata() -> MetadataResponse:
        requests.append(None)
        one.epoch = 4 if len(requests) > 4 else 3
        return of_peer()

    requests: list[None] = []
    async with world(answer) as one:
        of_peer, one.metadata = one.metadata, metadata  # type: ignore[method-assign]
        await one.until(lambda: one.progress.buffered)
        assert len(requests) > 4
        assert [epoch for _, epoch in one.fetches[:2]] == [3, 4]


async def test_r12_fenced_epoch_is_retried_after_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that was restored has the old epoch again."""
    monkeypatch.setattr(fetcher, "FENCED_RETRY_S", 0.1)
    refusals = [refused(ErrorCode.FENCED_LEADER_EPOCH)]
    async with world(lambda offset: refusals.pop() if refusals else (found(0) if offset == 0 else None)) as one:
        await one.until(lambda: one.progress.buffered)
        assert {epoch for _, epoch in one.fetches} == {3}


async def test_out_of_range_offset_is_not_fetched_repeatedly() -> None:
    async with world(lambda offset: refused(ErrorCode.OFFSET_OUT_OF_RANGE)) as one:
        await one.arrived.wait()
        assert one.progress.must_reset
        one.fetcher.poke()
        await asyncio.sleep(0.1)
        assert len(one.fetches) == 1
        one.answer = lambda offset: found(offset) if offset == 7 else None
        one.progress.seek(7)
        one.fetcher.poke()
        await one.until(lambda: one.progress.buffered)


async def test_corrupt_message_is_raised_once_per_fetch_attempt() -> None:
    async with world(lambda offset: refused(ErrorCode.CORRUPT_MESSAGE) if offset == 2 else found(offset)) as one:
        await one.until(lambda: one.progress.damaged)
        one.progress.check_damage()  # what came before it is handed out first
        assert [record.offset for record in one.progress.take(5)] == [0, 1]
        for fetches in (2, 3):
            await one.until(lambda: one.progress.damaged)
            one.fetcher.poke()
            await asyncio.sleep(0.1)
            assert [offset for offset, _ in one.fetches] == [0, *[2] * (fetches - 1)]
            with pytest.raises(KafkaError, match="offset 2 is damaged") as caught:
                one.progress.check_damage()
            assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
            one.progress.check_damage()
            one.arrived.clear()
            one.fetcher.poke()
            await one.arrived.wait()
        one.progress.seek(3)
        one.fetcher.poke()
        await one.until(lambda: one.progress.buffered)
        assert not one.progress.damaged


async def test_response_overtaken_by_seek_is_dropped() -> None:
    def answer(offset: int) -> PartitionData | None:
        if offset == 0:
            one.progress.seek(100)
            return found(0)
        return found(offset) if offset == 100 else None

    async with world(answer) as one:
        await one.until(lambda: one.progress.buffered)
        assert [record.offset for record in one.progress.take(5)] == [100, 101]


async def test_malformed_and_refused_fetches_are_retried_with_backoff() -> None:
    answers = [
        PartitionData(partition_index=0, error_code=0, high_watermark=5, records=b"\x00" * 70),
        refused(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        refused(ErrorCode.UNKNOWN_LEADER_EPOCH),
    ]
    async with world(lambda offset: answers.pop(0) if answers else (found(0) if offset == 0 else None)) as one:
        begin = asyncio.get_running_loop().time()
        await one.until(lambda: one.progress.buffered)
        assert asyncio.get_running_loop().time() - begin > 0.03, "each was given a moment, and the next a longer one"


@pytest.mark.asyncio(loop_factories=["hasty"])
async def test_backoff_ends_with_its_timer_even_if_clock_lags() -> None:
    refusals = [refused(ErrorCode.UNKNOWN_LEADER_EPOCH) for _ in range(8)]
    async with world(lambda offset: refusals.pop() if refusals else (found(0) if offset == 0 else None)) as one:
        await one.until(lambda: one.progress.buffered)
        assert not refusals


async def test_full_buffer_and_pause_stop_fetching_and_lost_connection_does_not() -> None:
    big = b"x" * 600_000
    full = PartitionData(partition_index=0, error_code=0, high_watermark=5, records=batch(0, [big]))
    async with world(lambda offset: full if offset == 0 else (found(1) if offset == 1 else None)) as one:
        await one.until(lambda: one.progress.buffered)
        await asyncio.sleep(0.1)
        assert len(one.fetches) == 1
        one.peer.drop_connections()
        one.progress.take(5)
        one.progress.paused = True
        one.fetcher.poke()
        await asyncio.sleep(0.1)
        assert len(one.fetches) == 1
        one.progress.paused = False
        one.fetcher.poke()
        await one.until(lambda: one.progress.fetch_offset == 3)


async def test_seek_during_delayed_fetch_is_fetched_at_once() -> None:
    """The peer holds the fetch at the old offset; the new one uses another connection."""
    parked = asyncio.Event()
    async with world(lambda offset: found(offset) if offset == 100 else None, parked) as one:
        await one.until(lambda: one.fetches)
        one.progress.seek(100)
        one.fetcher.poke()
        await one.until(lambda: one.progress.buffered)
        assert [offset for offset, _ in one.fetches[:2]] == [0, 100]
        parked.set()


async def test_second_fetch_requests_back_off_while_they_return_nothing() -> None:
    """The first request stays parked all the time: its node is not asked every 20 ms for what is not there."""
    parked = asyncio.Event()
    async with world(lambda offset: None, parked) as one:
        one.fetcher._max_wait_ms = 500
        await one.until(lambda: one.fetches)
        one.progress.seek(100)
        one.fetcher.poke()
        await one.until(lambda: len(one.waits_ms) >= 5)
        assert one.waits_ms[1:5] == [20, 40, 80, 80]
        parked.set()
