"""Which log is compacted next, and what happens to the others if it fails or is deleted."""

from __future__ import annotations

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings, TopicConfig
from anabranch.broker.storage import log_cleaner
from anabranch.broker.storage.cleaner import CleanableLog
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.log_manager import LogManager
from anabranch.broker.storage.memory_files import MemoryFiles
from tests.broker.storage.faulty_files import FaultyFiles
from tests.broker.storage.logs import TOPIC_ID, fill, manager


def test_compaction_follows_cleanup_policy_changes() -> None:
    config = {"t": TopicConfig(segment_bytes=300)}
    logs = LogManager(MemoryFiles(), BrokerSettings(), config.__getitem__, lambda: 0)
    logs.load_checkpoints()
    fill(logs.open("t", 0, TOPIC_ID), 20)
    assert not logs.clean_step(lambda key: 20)
    config["t"] = TopicConfig(segment_bytes=300, cleanup_policy="compact")
    logs.config_changed("t", 0)
    assert logs.clean_step(lambda key: 20)


def test_failed_compaction_of_a_log_does_not_prevent_compaction_of_others(caplog: pytest.LogCaptureFixture) -> None:
    """Two disks; the one with the dirtier log is full."""
    disks = {path: FaultyFiles(MemoryFiles()) for path in ("/a", "/b")}
    config = TopicConfig(segment_bytes=300, cleanup_policy="compact")
    logs = LogManager(disks, BrokerSettings(), lambda _: config, lambda: 0)
    logs.load_checkpoints()
    many, few = (logs.open(topic, 0, TOPIC_ID) for topic in ("many", "few"))
    for log in (many, few):
        fill(log, 20)
    few.cleaned_to = 4
    disks["/a"].full = True

    def turn() -> None:
        caplog.clear()
        steps = sum(1 for _ in iter(lambda: logs.clean_step(lambda key: 20), False))
        assert steps < 100

    for _ in range(2):
        turn()
        assert (many.cleaned_to, few.cleaned_to) == (0, few.segments.active.base_offset)
        assert caplog.text.count("many-0: cannot compact yet") == 1
    disks["/a"].full = False
    turn()
    assert many.cleaned_to == many.segments.active.base_offset


def test_dirtiest_log_is_compacted_first() -> None:
    files = MemoryFiles()
    config = TopicConfig(segment_bytes=300, cleanup_policy="compact")
    logs = manager(files, config)
    few, many = logs.open("few", 0, TOPIC_ID), logs.open("many", 0, TOPIC_ID)
    for log in (few, many):
        fill(log, 20)
    few.cleaned_to = few.segments.active.base_offset - 4

    ends = {("few", 0): few.log_end_offset, ("many", 0): many.log_end_offset}
    while logs.clean_step(ends.__getitem__):
        assert few.size_bytes > 1000 or many.size_bytes < 1000, "the other one first"
    assert many.cleaned_to == many.segments.active.base_offset
    assert many.size_bytes < few.size_bytes
    logs.checkpoint([])
    again = manager(files, config).open("many", 0, TOPIC_ID)
    assert again.cleaned_to == many.cleaned_to


def test_segments_of_a_log_without_dirty_sealed_segments_are_not_visited(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be thousands of such logs, and the next one to clean is chosen in one step."""
    logs = manager(MemoryFiles(), TopicConfig(segment_bytes=300, cleanup_policy="compact"))
    logs.open("empty", 0, TOPIC_ID)
    fill(logs.open("short", 0, TOPIC_ID), 1)
    clean, dirty = logs.open("clean", 0, TOPIC_ID), logs.open("dirty", 0, TOPIC_ID)
    for log in (clean, dirty):
        fill(log, 20)
    clean.cleaned_to = clean.segments.active.base_offset
    visited: list[str] = []

    def note(log: PartitionLog, *_: int) -> CleanableLog:
        visited.append(log.directory)
        return CleanableLog(0, 0, 0, 0, False)

    monkeypatch.setattr(log_cleaner, "cleanable_part", note)
    assert not logs.clean_step(lambda key: 20)
    assert visited == ["dirty-0"]
    clean.cleaned_to -= 1
    assert not logs.clean_step(lambda key: 20)
    assert visited[1:] == ["clean-0", "dirty-0"]


def test_unreadable_log_is_not_compacted_again(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    config = TopicConfig(segment_bytes=300, cleanup_policy="compact")
    first = manager(files, config)
    log = first.open("t", 0, TOPIC_ID)
    fill(log, 20)
    path = f"t-0/{list(log.segments)[1].base_offset:020d}.log"
    first.close()
    content = bytearray(files.read_file(path) or b"")
    content[-1] ^= 1
    files.write_file(path, bytes(content))
    logs = manager(files, config)
    assert logs.open("t", 0, TOPIC_ID).scanned_segments == 0
    steps = 0
    while logs.clean_step(lambda key: 20):
        steps += 1
    assert 0 < steps < 50
    assert caplog.text.count("no more compaction") == 1
    assert files.read_file(path) == bytes(content)


def test_deletion_of_a_log_abandons_its_compaction() -> None:
    files = MemoryFiles()
    logs = manager(files, TopicConfig(segment_bytes=300, cleanup_policy="compact", file_delete_delay_ms=0))
    log = logs.open("t", 0, TOPIC_ID)
    fill(log, 20)
    assert logs.clean_step(lambda key: 20)
    assert logs.clean_step(lambda key: 20)
    logs.delete("t", 0)
    assert not logs.clean_step(lambda key: 20)
    assert files.names("") == ["recovery-point-offset-checkpoint"]


def test_compaction_waits_until_later_records_are_flushed() -> None:
    """A power failure must not take the later record, after compaction has removed the earlier one."""
    files = FaultyFiles(MemoryFiles())
    logs = manager(files, TopicConfig(segment_bytes=300, cleanup_policy="compact"))
    log = logs.open("t", 0, TOPIC_ID)
    fill(log, 20)
    sizes = log.size_bytes
    while log.durability.has_sealed_unflushed:
        assert logs.clean_step(lambda _: 20)
        assert log.size_bytes == sizes
    while logs.clean_step(lambda _: 20):
        pass
    assert log.size_bytes < sizes
    written = files.read_file("recovery-point-offset-checkpoint")
    assert written == f"0\n1\nt 0 {log.segments.active.base_offset}\n".encode(), "the next start expects gaps below it"


def test_log_is_not_compacted_while_it_moves() -> None:
    config = TopicConfig(segment_bytes=300, cleanup_policy="compact")
    logs = LogManager({"/a": MemoryFiles(), "/b": MemoryFiles()}, BrokerSettings(), lambda _: config, lambda: 0)
    logs.load_checkpoints()
    fill(logs.open("t", 0, TOPIC_ID), 20)
    logs.begin_future("t", 0, "/b")
    assert not logs.clean_step(lambda _: 20)
    logs.drop_future("t", 0)
    assert logs.clean_step(lambda _: 20)
