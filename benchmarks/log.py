"""A partition log compared with its minimum cost, and record batches compared with aiokafka's C code.

A log needs at least the checksum of a batch and one copy of it into fresh memory (or one write): the first table shows
the additional cost. The second table compares building and iterating records, pure Python here, with compiled code. The
third opens a log after a clean stop, after a crash, and without any checkpoint, when every byte is read; and compacts
it.

    python -m benchmarks.log [--batch-bytes 16384]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from anabranch.broker.storage.cleaner import Cleaning, cleanable_part
from anabranch.broker.storage.files import Files
from anabranch.broker.storage.inspection import InspectedRecords
from anabranch.broker.storage.log import LogSettings, PartitionLog
from anabranch.broker.storage.log_append import append_as_leader
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.broker.storage.os_files import OsFiles
from anabranch.protocol.records.batch import iter_batches, read_header
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.crc32c import crc32c
from anabranch.protocol.records.record import iter_records
from benchmarks.report import Figure, percentile, summary, table, times, working

BATCHES: Final = 3000
VALUE: Final = b"v" * 50
BATCH_BYTES: Final = 16384
APPEND_ADDS_US_AIM: Final = 15.0
RECORDS_PER_SECOND_AIM: Final = 200_000
LOG_BYTES: Final = 200 << 20
OPEN_CLEAN_MS_AIM: Final = 100.0
STEP_MS_AIM: Final = 20.0


def a_batch(batch_bytes: int) -> bytes:
    builder = BatchBuilder(limit_bytes=batch_bytes)
    count = 0
    while builder.append(b"key-%d" % (count % 1000), VALUE, (), 1_700_000_000_000 + count):
        count += 1
    return builder.build()


def each_us(count: int, action: Callable[[], object]) -> float:
    """Microseconds per call, the best of three rounds."""
    rounds = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(count):
            action()
        rounds.append((time.perf_counter() - start) / count * 1e6)
    return min(rounds)


def floor_in_memory(batch: bytes) -> Callable[[], object]:
    content = bytearray()

    def append() -> None:
        nonlocal content
        crc32c(batch)
        content += batch

    return append


def floor_on_disk(batch: bytes, path: Path) -> Callable[[], object]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def append() -> None:
        crc32c(batch)
        os.write(descriptor, batch)

    return append


def sequential_read(log: PartitionLog, batch_bytes: int) -> Callable[[], object]:
    """Fetch sequentially, and start again at the log's end."""
    offset = 0

    def read() -> None:
        nonlocal offset
        data = log.read(offset, batch_bytes)
        offset = read_header(data).next_offset % log.log_end_offset

    return read


def log_table(batch: bytes, directory: Path) -> list[Figure]:
    """The cost of appending and reading, compared with the minimum."""
    rows, figures = [], []
    kinds: list[tuple[str, Files, Callable[[], object]]] = [
        ("memory", MemoryFiles(), floor_in_memory(batch)),
        ("disk", OsFiles(directory / "log"), floor_on_disk(batch, directory / "floor")),
    ]
    for name, files, floor in kinds:
        log = PartitionLog.open(files, "t-0", LogSettings(), 0)
        floor_us = each_us(BATCHES, floor)
        looked_at = InspectedRecords(read_header(batch).max_timestamp)  # measured by `inspection`
        append_us = each_us(
            BATCHES,
            lambda log=log, found=looked_at: append_as_leader(log, batch, leader_epoch=1, now_ms=1, found=found),  # type: ignore[misc]
        )
        read_us = each_us(BATCHES, sequential_read(log, len(batch)))
        added_us = append_us - floor_us
        rows.append(
            (name, *(f"{one:.1f}" for one in (append_us, floor_us, added_us, read_us)), times(append_us, floor_us))
        )
        if name == "memory":
            figures.append(
                Figure(
                    f"a log in memory adds to checksum and copy of {len(batch) // 1024} KiB",
                    f"< {APPEND_ADDS_US_AIM:.0f} us",
                    f"{added_us:.1f} us",
                    f"checksum and copy {floor_us:.1f} us",
                    added_us < APPEND_ADDS_US_AIM,
                )
            )
    table(
        f"log: microseconds to append and to read a batch of {len(batch)} bytes",
        *("", "append", "floor", "added", "read", "append / floor"),
        rows=rows,
        note="floor: checksum and copy, or checksum and write",
    )
    return figures


def records_table(batch: bytes) -> list[Figure]:
    """Records per second, built and iterated."""
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

    rows, figures = [], []
    for name, own, compiled in (
        ("build", build, build_compiled),
        ("iterate", lambda: list(iter_records(batch)), lambda: list(DefaultRecordBatch(batch))),
    ):
        own_rate, compiled_rate = (count / each_us(200, action) * 1e6 for action in (own, compiled))
        rows.append((name, f"{own_rate:,.0f}", f"{compiled_rate:,.0f}", times(own_rate, compiled_rate)))
        figures.append(
            Figure(
                f"records a second, {name}",
                f"> {RECORDS_PER_SECOND_AIM:,}",
                f"{own_rate:,.0f}",
                f"aiokafka, compiled, {compiled_rate:,.0f} ({times(own_rate, compiled_rate)})",
                own_rate > RECORDS_PER_SECOND_AIM,
            )
        )
    table(f"records: records a second, {count} in a batch", "", "here", "aiokafka, compiled", "ratio", rows=rows)
    return figures


def opening_table(batch: bytes, directory: Path) -> list[Figure]:
    """The time to open a log, and the longest block of the event loop by its compaction."""
    files = OsFiles(directory / "opened")
    settings = LogSettings(segment_bytes=16 << 20, cleanup_policy="compact")
    log = PartitionLog.open(files, "t-0", settings, 0)
    while log.size_bytes < LOG_BYTES:
        append_as_leader(log, batch, leader_epoch=1, now_ms=1)
    log.close()
    bases = [segment.base_offset for segment in log.segments]
    rows, took_ms = [], {}
    for name, recovery_point, clean in (
        ("clean stop", log.recovery_point, True),
        ("crash", bases[-1], False),
        ("no checkpoint", 0, False),
    ):
        start = time.perf_counter()
        again = PartitionLog.open(files, "t-0", settings, 0, recovery_point=recovery_point, clean=clean)
        took_ms[name] = (time.perf_counter() - start) * 1e3
        rows.append((name, f"{took_ms[name]:.1f}", str(again.scanned_segments)))
    table(
        f"opening a log of {LOG_BYTES >> 20} MiB in {len(bases)} segments",
        *("", "milliseconds", "segments read"),
        rows=rows,
        note="after a crash, what was not flushed is read; without a checkpoint, everything is",
    )
    steps_ms = sorted(step_times_ms(Cleaning(files, again, cleanable_part(again, again.log_end_offset, 1), 1)))
    reading = f"read it all, {took_ms['no checkpoint']:.0f} ms"
    mib_per_second = LOG_BYTES / 2**20 / sum(steps_ms) * 1e3
    return [
        Figure(
            f"a clean log of {LOG_BYTES >> 20} MiB opens in",
            f"< {OPEN_CLEAN_MS_AIM:.0f} ms",
            f"{took_ms['clean stop']:.1f} ms",
            reading,
            took_ms["clean stop"] < OPEN_CLEAN_MS_AIM,
        ),
        Figure(
            "99 of 100 steps of compaction hold the loop for",
            f"< {STEP_MS_AIM:.0f} ms",
            f"{percentile(steps_ms, 99):.1f} ms, {mib_per_second:.0f} MiB/s",
            f"the longest {steps_ms[-1]:.0f} ms",
            percentile(steps_ms, 99) < STEP_MS_AIM,
        ),
    ]


def step_times_ms(cleaning: Cleaning) -> Iterator[float]:
    """The duration of each step of a pass."""
    going = True
    while going:
        start = time.perf_counter()
        going = cleaning.step()
        yield (time.perf_counter() - start) * 1e3


def measure(batch_bytes: int = BATCH_BYTES) -> list[Figure]:
    batch = a_batch(batch_bytes)
    assert len(list(iter_batches(batch))) == 1
    with working("log"), tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        return [*log_table(batch, place), *records_table(batch), *opening_table(batch, place)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--batch-bytes", type=int, default=BATCH_BYTES, help=f"size of a batch (default: {BATCH_BYTES})"
    )
    summary(measure(parser.parse_args(arguments).batch_bytes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
