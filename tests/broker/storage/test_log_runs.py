"""The batches of one Fetch response appended together, compared with the same batches appended one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from anabranch.broker.storage.log import LogSettings, PartitionLog
from anabranch.broker.storage.log_append import append_as_follower
from anabranch.broker.storage.log_settings import UNLIMITED
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import NO_TIMESTAMP
from anabranch.protocol.records.control import build_end_transaction
from tests.broker.storage.batches import NOW_MS, batch
from tests.broker.storage.faulty_files import FaultyFiles
from tests.broker.storage.logs import opened
from tests.cases import examples
from tests.compiled_parts import is_compiled
from tests.protocol.stored_batch import stored_at

SETTINGS = (
    LogSettings(index_interval_bytes=300),
    LogSettings(segment_bytes=6000, index_interval_bytes=300),
    LogSettings(segment_index_bytes=160, index_interval_bytes=200),
    LogSettings(segment_ms=60, retention_ms=UNLIMITED, index_interval_bytes=200),
    LogSettings(flush_messages=40, index_interval_bytes=0),
)
"""New segments seldom; by size, by a full index, and by age; flushes."""

OPERATIONS = 1000


@dataclass
class Leader:
    """Makes the batches of a log: of all kinds, after gaps that compaction leaves."""

    rng: random.Random
    offset: int = 0
    epoch: int = 1
    now_ms: int = NOW_MS
    sequences: dict[int, int] = field(default_factory=dict)

    def batch(self) -> bytes:
        rng = self.rng
        self.epoch += rng.random() < 0.06
        self.offset += 1 << 30 if rng.random() < 0.01 else rng.choice((0, 0, 0, 0, 3))
        self.now_ms += rng.randint(-3, 5)
        producer_id = rng.randint(0, 3)
        if rng.random() < 0.1:
            records = 1
            built = build_end_transaction(
                commit=rng.random() < 0.5,
                producer_id=1,
                producer_epoch=0,
                coordinator_epoch=1,
                timestamp_ms=self.now_ms,
            )
        else:
            records = rng.randint(1, 4)
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + records
            built = batch(
                records,
                value=bytes(rng.randint(0, 120)),
                timestamp_ms=NO_TIMESTAMP if records == 1 and rng.random() < 0.2 else self.now_ms,
                producer=(producer_id, 0, sequence) if producer_id else (-1, -1, -1),
                transactional=producer_id == 1,
            )
        built = stored_at(built, self.offset, self.epoch)
        self.offset += records
        return built

    def response(self) -> list[bytes]:
        """The batches of a response; one of them may be invalid, and the last one incomplete."""
        batches = [self.batch() for _ in range(self.rng.randint(1, 12))]
        kind = self.rng.choice(("valid", "valid", "valid", "torn", "checksum", "magic", "offset"))
        if kind == "valid":
            return batches
        if kind == "torn":
            return [*batches, batches[-1][:70]]
        keep = self.rng.randrange(len(batches))
        damaged = bytearray(batches[keep])
        if kind == "checksum":
            damaged[-1] ^= 1
        elif kind == "magic":
            damaged[16] = 1
        else:
            damaged = bytearray(stored_at(damaged, 0, self.epoch))
        return [*batches[:keep], bytes(damaged), *batches[keep + 1 :]]


def refusal_of(log: PartitionLog, pieces: list[bytes]) -> ErrorCode | None:
    """Append pieces up to the first that is refused."""
    for piece in pieces:
        try:
            append_as_follower(log, piece)
        except KafkaError as refusal:
            return refusal.code
    return None


def attributes_of(one: object) -> set[str]:
    """The names of an object's attributes; a compiled class has its own list of them."""
    kind: Any = type(one)
    return set(kind.__mypyc_attrs__ if is_compiled(kind.__module__) else kind.__slots__)


def state_of(log: PartitionLog, files: FaultyFiles) -> Iterator[tuple[str, Any]]:
    assert isinstance(files.inner, MemoryFiles)
    yield "files", files.inner.contents()
    yield "flushed", files.flushed
    yield "offsets", (log.log_start_offset, log.log_end_offset, log.recovery_point)
    yield "flush", (log.durability.unflushed, log.durability.failure)
    yield "epochs", (log.epochs.entries, log.epochs.unsaved)
    yield "aborted", log.producers.aborted
    yield "stable", (log.last_stable_offset(0), log.last_stable_offset(log.log_end_offset))
    for one in log.producers.entries:
        yield "producer", {name: getattr(one, name) for name in attributes_of(one)}
    for segment in log.segments:
        indexes = segment.indexes
        yield "index files", (indexes.offsets.to_bytes(), indexes.times.to_bytes())
        yield "indexes", {name: getattr(indexes, name) for name in attributes_of(indexes) - {"offsets", "times"}}
        yield (
            "segment",
            {name: getattr(segment, name) for name in attributes_of(segment) - {"_files", "file", "indexes"}},
        )


@pytest.mark.parametrize("settings", SETTINGS, ids=["seldom", "size", "index", "age", "flush"])
@pytest.mark.parametrize("disk", ["sound", "full", "failing"])
def test_batches_of_a_response_are_appended_as_one_by_one(settings: LogSettings, disk: str) -> None:
    writes = [0, 0]
    refused: set[ErrorCode | None] = set()
    for seed in range(examples(20, costly=60)):
        rng = random.Random(seed)
        leader = Leader(rng)
        disks = [FaultyFiles(MemoryFiles()) for _ in range(2)]
        together, apart = logs = [opened(files, settings) for files in disks]
        for number in range(12):
            leader.offset = together.log_end_offset
            response = leader.response()
            room_bytes = rng.randint(0, sum(map(len, response)) + 100) if disk == "full" and number % 4 == 2 else None
            for files, log in zip(disks, logs, strict=True):
                log.apply_retention(NOW_MS + 10 * number)
                files.room_bytes = room_bytes
                files.failing_flush = disk == "failing" and number > 8
                if files.failing_flush:
                    with suppress(KafkaError):
                        log.durability.attempt(log.flush)
                files.crash_after = OPERATIONS
            found = refusal_of(together, [b"".join(response)])
            refused.add(found)
            assert found == refusal_of(apart, response), f"seed {seed}"
            for one, other in zip(state_of(together, disks[0]), state_of(apart, disks[1]), strict=True):
                assert one == other, f"seed {seed}"
            for index, files in enumerate(disks):
                writes[index] += OPERATIONS - (files.crash_after or 0)
    assert writes[0] < 0.95 * writes[1], "many responses are written at once"
    assert {None, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR} <= refused
    assert (ErrorCode.KAFKA_STORAGE_ERROR in refused) == (disk != "sound")


@pytest.mark.parametrize("start_offset", range(8))
def test_response_to_a_log_that_starts_inside_a_batch_is_appended_as_one_by_one(start_offset: int) -> None:
    response = [batch(4, at=(0, 1)), batch(2, at=(4, 1)), batch(2, at=(6, 2))]
    logs = []
    disks = [FaultyFiles(MemoryFiles()) for _ in range(2)]
    first = 0 if start_offset < 4 else 1 + (start_offset >= 6)
    for files, pieces in zip(disks, ([b"".join(response[first:])], response[first:]), strict=True):
        log = opened(files)
        log.truncate_fully_and_start_at(start_offset)
        assert refusal_of(log, pieces) is None
        logs.append(log)
    assert list(state_of(logs[0], disks[0])) == list(state_of(logs[1], disks[1]))
    assert (logs[0].log_start_offset, logs[0].log_end_offset) == (start_offset, 8)
