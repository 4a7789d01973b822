"""Lost records found at the opening of a log: a torn end is none, other losses are remembered."""

from __future__ import annotations

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings, TopicConfig
from anabranch.broker.storage.files import Files
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.log_manager import LogManager
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.records.batch import HEADER_BYTES
from tests.broker.storage.batches import NOW_MS, batch
from tests.broker.storage.logs import SMALL, append

TOPIC_ID = b"0123456789abcdef"
KEY = ("t", 0)
LENGTH_AT, MAGIC_AT = 8, 16


def stored(files: Files) -> list[tuple[str, int, int]]:
    """Fourteen batches in several segments; where each of those in the last file begins and ends."""
    log = PartitionLog.open(files, "t-0", SMALL, NOW_MS)
    for number in range(14):
        append(log, batch(2, producer=(7, 0, 2 * number)))
    active = log.segments.active
    path = f"t-0/{active.base_offset:020d}.log"
    found = [(path, position, position + header.size_bytes) for position, header in active.headers()]
    assert len(log.segments) > 1 and len(found) > 2
    return found


def change(files: Files, path: str, at: int, flip: int) -> None:
    content = bytearray(files.read_file(path) or b"")
    content[at] ^= flip
    files.write_file(path, bytes(content))


def reached(files: Files) -> tuple[int, int]:
    """How far the log went, and goes."""
    log = PartitionLog.open(files, "t-0", SMALL, NOW_MS)
    return log.durability.reached, log.log_end_offset


def test_partial_last_batch_is_no_loss(files: Files) -> None:
    path, start, _ = stored(files)[-1]
    whole = files.read_file(path) or b""
    for size_bytes in (start + 1, start + HEADER_BYTES - 1, start + HEADER_BYTES + 1, len(whole) - 1):
        files.write_file(path, whole[:size_bytes])
        assert reached(files) == (0, 26), size_bytes


@pytest.mark.parametrize(
    ("at", "flip"),
    [(-1, 1), (HEADER_BYTES, 64), (MAGIC_AT, 1), (LENGTH_AT, 64), (LENGTH_AT, 128), (LENGTH_AT + 3, 4)],
    ids=["end", "records", "magic", "longer than the file", "negative", "a little longer"],
)
def test_batch_after_the_damage_is_a_loss(files: Files, at: int, flip: int) -> None:
    path, start, stop = stored(files)[1]
    change(files, path, stop - 1 if at < 0 else start + at, flip)
    went, end = reached(files)
    assert went > end, "more is known to have been there"


def test_smallest_batch_after_the_damage_is_a_loss(files: Files) -> None:
    log = PartitionLog.open(files, "t-0", SMALL, NOW_MS)
    append(log)
    append(log, batch(key=None, value=None))
    change(files, f"t-0/{0:020d}.log", MAGIC_AT, 1)
    assert reached(files) == (1, 0)


def test_complete_corrupt_batch_is_a_loss(files: Files) -> None:
    path, _, stop = stored(files)[-1]
    change(files, path, stop - 1, 1)
    assert reached(files) == (27, 26)


def test_missing_segment_is_a_loss(files: Files) -> None:
    stored(files)
    first = min(name for name in files.names("t-0") if name.endswith(".log"))
    change(files, f"t-0/{first}", HEADER_BYTES, 1)
    went, end = reached(files)
    assert end == 0 and went > 2


def manager(files: Files) -> LogManager:
    logs = LogManager(files, BrokerSettings(), lambda _: TopicConfig(), lambda: NOW_MS)
    logs.load_checkpoints()
    return logs


@pytest.mark.parametrize("known", ["high watermark", "recovery point"])
def test_log_end_below_a_checkpoint_is_a_loss(known: str) -> None:
    """Missing whole batches leave no trace in the log; only the checkpoint knows, also after a restart."""
    files = MemoryFiles()
    first = manager(files)
    log = first.open(*KEY, TOPIC_ID)
    for _ in range(3):
        append(log)
    if known == "recovery point":
        log.flush()
    first.checkpoint([(*KEY, log.log_end_offset if known == "high watermark" else 0)])
    went, path = log.log_end_offset, f"t-0/{0:020d}.log"
    last = list(log.segments.active.headers())[-1][0]
    files.write_file(path, (files.read_file(path) or b"")[:last])
    for life in range(3):
        logs = manager(files)
        opened = logs.open(*KEY, TOPIC_ID)
        assert opened.log_end_offset < went == opened.durability.reached, f"life {life}"
        logs.checkpoint([(*KEY, opened.log_end_offset)])  # says nothing any more of the loss
    opened.durability.reached = 0
    opened.touched()
    logs.checkpoint([])
    assert manager(files).open(*KEY, TOPIC_ID).durability.reached == 0, "forgotten for good"


def test_loss_is_known_after_the_next_restart() -> None:
    files = MemoryFiles()
    log = manager(files).open(*KEY, TOPIC_ID)
    for _ in range(3):
        append(log)
    change(files, f"t-0/{0:020d}.log", HEADER_BYTES, 1)
    assert manager(files).open(*KEY, TOPIC_ID).durability.reached == 1
    again = manager(files).open(*KEY, TOPIC_ID)
    assert (again.log_end_offset, again.durability.reached) == (0, 1)
