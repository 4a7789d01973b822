"""The journal returns its records in order, and maps failures to error codes of groups."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from anabranch.broker.coordinators.runtime.journal import (
    COMMIT_ERRORS,
    GROUP_ERRORS,
    Journal,
    JournalRecord,
    TransactionEnd,
    entries_of,
)
from anabranch.broker.storage.log_append import append_as_follower, append_as_leader
from anabranch.broker.tasks.yield_budget import ELEMENTS_PER_YIELD
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.internal_topics import GroupMetadataKey, OffsetCommitKey, encode_key
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.control import build_end_transaction
from tests.broker.coordinators.world import GroupWorld, group_world
from tests.broker.storage.unreadable import UNREADABLE
from tests.broker.yields import manual_clock
from tests.protocol.stored_batch import stored_at

OFFSET_KEY = OffsetCommitKey(group="g", topic="t", partition=1)
GROUP_KEY = GroupMetadataKey(group="g")


def journal(world: GroupWorld, timeout_ms: int = 60_000) -> Journal:
    return Journal(world[1].replicas, timeout_ms=timeout_ms, clock_ms=world.clock_ms)


async def test_appended_records_are_read_back() -> None:
    async with group_world() as world:
        mine = journal(world)
        assert await mine.append(0, [(encode_key(OFFSET_KEY), b"1"), (encode_key(GROUP_KEY), None)], {}) == 0
        assert await mine.append(0, [(encode_key(OFFSET_KEY), b"2")], {}) == 2
        data, following = mine.read(0, mine.first_offset(0))
        entries = list(entries_of(data))
        assert entries == [
            JournalRecord(OFFSET_KEY, b"1", 0),
            JournalRecord(GROUP_KEY, None, 1),
            JournalRecord(OFFSET_KEY, b"2", 2),
        ]
        assert following == 3 and mine.read(0, 3) == (b"", 3)
        assert list(entries_of(mine.read(0, 1)[0], 1)) == entries[1:], "from the middle of a batch"


async def test_only_the_leader_reads_and_writes() -> None:
    async with group_world(brokers=2) as world:
        mine = journal(world)
        await world.coordinate(2)
        for attempt in (lambda: mine.first_offset(0), lambda: mine.read(0, 0)):
            with pytest.raises(KafkaError) as refused:
                attempt()
            assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(KafkaError) as refused:
            await mine.append(0, [(b"\0\0", None)], COMMIT_ERRORS)
        assert refused.value.code is ErrorCode.NOT_COORDINATOR


async def test_append_below_min_isr_is_refused() -> None:
    async with group_world(brokers=2, min_insync_replicas=2) as world:
        await world.coordinate(1, isr=(1,))
        for errors in (COMMIT_ERRORS, GROUP_ERRORS):
            with pytest.raises(KafkaError) as refused:
                await journal(world).append(0, [(encode_key(GROUP_KEY), None)], errors)
            assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_append_without_acknowledgement_times_out() -> None:
    async with group_world(brokers=2) as world:
        await world.kill(2)
        for errors, code in [
            (COMMIT_ERRORS, ErrorCode.REQUEST_TIMED_OUT),
            (GROUP_ERRORS, ErrorCode.REBALANCE_IN_PROGRESS),
        ]:
            with pytest.raises(KafkaError) as refused:
                await journal(world, timeout_ms=50).append(0, [(encode_key(GROUP_KEY), None)], errors)
            assert refused.value.code is code


def test_unknown_keys_are_skipped_and_transactional_records_are_read() -> None:
    staged = BatchBuilder()
    staged.append(encode_key(OFFSET_KEY), b"v", timestamp_ms=0)
    future = BatchBuilder()
    future.append(b"\x00\x09what", b"v", timestamp_ms=0)
    future.append(None, b"v", timestamp_ms=0)
    marker = build_end_transaction(commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0)
    data = staged.build(7, 0, 0, transactional=True) + future.build(base_offset=1) + marker
    assert list(entries_of(data)) == [JournalRecord(OFFSET_KEY, b"v", 0, producer_id=7), TransactionEnd(7, commit=True)]


@pytest.mark.parametrize("records", UNREADABLE.values(), ids=UNREADABLE.keys())
async def test_unreadable_records_are_skipped(records: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with group_world() as world:
        mine = journal(world)
        await mine.append(0, [(encode_key(OFFSET_KEY), b"1")], {})
        log = world[1].replicas.partition(mine.topic, 0).log
        append_as_follower(log, stored_at(records, 1))
        junk = BatchBuilder()
        junk.append(b"\0", b"a key that is none", timestamp_ms=0)
        append_as_follower(log, stored_at(junk.build(), log.log_end_offset))
        last = await mine.append(0, [(encode_key(OFFSET_KEY), b"2")], {})
        received: list[JournalRecord | TransactionEnd] = []
        assert await mine.replay(0, received.append) == last + 1
        assert received == [JournalRecord(OFFSET_KEY, b"1", 0), JournalRecord(OFFSET_KEY, b"2", last)]
        assert "skipping" in caplog.text

        def refuse(_: JournalRecord | TransactionEnd) -> None:
            raise DecodeError("no such value")

        assert await mine.replay(0, refuse) == last + 1
        assert caplog.text.count("no such value") == 2


@pytest.mark.parametrize("batches", [1, 8_000])
async def test_load_lets_others_run_between_its_records(batches: int) -> None:
    """Also within a batch: a commit of all partitions of a cluster is one."""
    async with group_world() as world:
        mine = journal(world)
        partition = world[1].replicas.partition(mine.topic, 0)
        builder = BatchBuilder(limit_bytes=1 << 20)
        for _ in range(8_000 // batches):
            builder.append(encode_key(OFFSET_KEY), b"1", timestamp_ms=0)
        for _ in range(batches):
            append_as_leader(partition.log, builder.build(), leader_epoch=0, now_ms=0, origin="coordinator")
        partition.advance_high_watermark(0)
        received: list[JournalRecord | TransactionEnd] = []
        seen = [0]
        with manual_clock():
            loading = asyncio.create_task(mine.replay(0, received.append))
            while not loading.done():
                await asyncio.sleep(0)
                seen.append(len(received))
        assert seen[-1] == 8_000
        assert max(after - before for before, after in pairwise(seen)) <= ELEMENTS_PER_YIELD


async def test_load_reads_in_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    async with group_world() as world:
        monkeypatch.setattr("anabranch.broker.coordinators.runtime.journal.LOAD_BYTES", 200)
        mine = journal(world)
        for number in range(20):
            await mine.append(0, [(encode_key(OFFSET_KEY), b"%d" % number)], {})
        received: list[JournalRecord | TransactionEnd] = []
        sizes = [0]
        loading = asyncio.create_task(mine.replay(0, received.append))
        while not loading.done():
            await asyncio.sleep(0)
            sizes.append(len(received))
        assert max(after - before for before, after in pairwise(sizes)) < 20
        assert [one.value for one in received if isinstance(one, JournalRecord)] == [
            b"%d" % number for number in range(20)
        ]
