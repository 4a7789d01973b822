"""A partition log beside what its bytes alone cost, and record batches beside aiokafka's C code.

A log cannot be cheaper than the checksum of a batch and one copy of it into fresh memory (or one write): the first
table shows what the log adds to that floor. The second table compares building and iterating records, pure Python here,
with compiled code.

    python -m benchmarks.log [--batch-bytes 16384]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from broker.storage.files import Files, MemoryFiles, OsFiles
from broker.storage.log import LogSettings, PartitionLog
from protocol.records.batch import BatchBuilder, iter_batches, iter_records, read_header
from protocol.records.crc32c import crc32c

BATCHES: Final = 3000
VALUE: Final = b"v" * 50
APPEND_OVERHEAD_US_MAX: Final = 15.0
READ_US_MAX: Final = 10.0
RECORDS_PER_SECOND_MIN: Final = 200_000


def a_batch(batch_bytes: int) -> bytes:
    """As many small records as fit."""
    builder = BatchBuilder(limit_bytes=batch_bytes)
    count = 0
    while builder.append(b"key-%d" % (count % 1000), VALUE, (), 1_700_000_000_000 + count):
        count += 1
    return builder.build()


def each_us(count: int, action: Callable[[], object]) -> float:
    """The best of three rounds, microseconds a call."""
    rounds = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(count):
            action()
        rounds.append((time.perf_counter() - start) / count * 1e6)
    return min(rounds)


def floor_in_memory(batch: bytes) -> Callable[[], object]:
    """Checksum and copy, nothing else."""
    content = bytearray()

    def append() -> None:
        nonlocal content
        crc32c(batch)
        content += batch

    return append


def floor_on_disk(batch: bytes, path: Path) -> Callable[[], object]:
    """Checksum and write, nothing else."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def append() -> None:
        crc32c(batch)
        os.write(descriptor, batch)

    return append


def sequential_read(log: PartitionLog, batch_bytes: int) -> Callable[[], object]:
    """One fetch after the other, around the log."""
    offset = 0

    def read() -> None:
        nonlocal offset
        data = log.read(offset, batch_bytes)
        offset = read_header(data).next_offset % log.log_end_offset

    return read


def log_table(batch: bytes, directory: Path) -> bool:
    """What appending and reading cost; whether both are within their budget."""
    print(f"{'log':<9}{'append':>9}{'floor':>9}{'added':>9}{'ratio':>8}{'read':>9}   microseconds, {len(batch)} bytes")
    fine = True
    kinds: list[tuple[str, Files, Callable[[], object]]] = [
        ("memory", MemoryFiles(), floor_in_memory(batch)),
        ("disk", OsFiles(directory / "log"), floor_on_disk(batch, directory / "floor")),
    ]
    for name, files, floor in kinds:
        log = PartitionLog.open(files, "t-0", LogSettings(), 0)
        floor_us = each_us(BATCHES, floor)
        append_us = each_us(BATCHES, lambda log=log: log.append_as_leader(batch, leader_epoch=1, now_ms=1))  # type: ignore[misc]
        read_us = each_us(BATCHES, sequential_read(log, len(batch)))
        added_us = append_us - floor_us
        print(f"{name:<9}{append_us:9.1f}{floor_us:9.1f}{added_us:9.1f}{append_us / floor_us:8.1f}{read_us:9.1f}")
        if name == "memory":
            fine = added_us <= APPEND_OVERHEAD_US_MAX and read_us <= READ_US_MAX
    return fine


def records_table(batch: bytes) -> bool:
    """Records a second, built and iterated; whether that is fast enough."""
    from aiokafka.record.default_records import (  # type: ignore[import-untyped]
        DefaultRecordBatch,
        DefaultRecordBatchBuilder,
    )

    count = read_header(batch).record_count
    records = [(record.key, record.value, record.timestamp_ms) for record in iter_records(batch)]

    def build() -> None:
        builder = BatchBuilder(limit_bytes=len(batch))
        for key, value, timestamp_ms in records:
            builder.append(key, value, (), timestamp_ms)
        builder.build()

    def build_compiled() -> None:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, len(batch))
        for offset, (key, value, timestamp_ms) in enumerate(records):
            builder.append(offset, timestamp_ms, key, value, [])
        builder.build()

    print(f"\n{'records':<9}{'here':>12}{'compiled':>12}{'ratio':>8}   records a second, {count} in a batch")
    slowest = float("inf")
    for name, own, compiled in (
        ("build", build, build_compiled),
        ("iterate", lambda: list(iter_records(batch)), lambda: list(DefaultRecordBatch(batch))),
    ):
        own_rate, compiled_rate = (count / each_us(200, action) * 1e6 for action in (own, compiled))
        slowest = min(slowest, own_rate)
        print(f"{name:<9}{own_rate:12,.0f}{compiled_rate:12,.0f}{own_rate / compiled_rate:8.2f}")
    return slowest >= RECORDS_PER_SECOND_MIN


def main(arguments: list[str] | None = None) -> int:
    """Print both tables; fail when a budget is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batch-bytes", type=int, default=16384, help="size of a batch (default: 16384)")
    batch = a_batch(parser.parse_args(arguments).batch_bytes)
    assert len(list(iter_batches(batch))) == 1
    with tempfile.TemporaryDirectory() as directory:
        fine = log_table(batch, Path(directory))
    fine = records_table(batch) and fine
    print(
        f"wanted: append adds {APPEND_OVERHEAD_US_MAX:.0f} us at most, read {READ_US_MAX:.0f} us at most (memory), "
        f"{RECORDS_PER_SECOND_MIN:,} records a second: {'ok' if fine else 'TOO SLOW'}"
    )
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
