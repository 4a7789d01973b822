"""The log manager: state across restarts, and directories that it refuses."""

from __future__ import annotations

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings, TopicConfig
from anabranch.broker.storage import log_manager
from anabranch.broker.storage.files import Files
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.log_append import append_as_leader
from anabranch.broker.storage.log_directory import read_topic_id
from anabranch.broker.storage.log_manager import LogManager
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.faulty_files import FaultyFiles
from tests.broker.storage.logs import TOPIC_ID, fill, manager, one_record


def test_damaged_checkpoint_is_ignored_at_the_start() -> None:
    files = MemoryFiles()
    files.write_file("replication-offset-checkpoint", b"nonsense")
    assert manager(files).high_watermark("a", 1) == 0


def test_high_watermarks_and_log_starts_survive_a_restart() -> None:
    files = MemoryFiles()
    first = manager(files)
    log = first.open("t", 0, TOPIC_ID)
    for _ in range(5):
        append_as_leader(log, one_record(), leader_epoch=0, now_ms=1)
    log.increment_log_start_offset(2)
    first.checkpoint([("t", 0, 4)])
    first.close()

    second = manager(files)
    assert second.high_watermark("t", 0) == 4
    again = second.open("t", 0, TOPIC_ID)
    assert (again.log_start_offset, again.log_end_offset) == (2, 5)


def test_checkpoint_entries_of_unopened_partitions_are_kept() -> None:
    files = MemoryFiles()
    first = manager(files)
    first.checkpoint([("t", 0, 4), ("u", 0, 9)])
    second = manager(files)
    second.checkpoint([("t", 0, 5)])
    third = manager(files)
    assert (third.high_watermark("t", 0), third.high_watermark("u", 0)) == (5, 9)


def test_log_directory_with_another_topic_id_is_refused() -> None:
    files = MemoryFiles()
    manager(files).open("t", 0, TOPIC_ID)
    assert read_topic_id(files.read_file("t-0/partition.metadata")) == TOPIC_ID
    with pytest.raises(KafkaError) as refused:
        manager(files).open("t", 0, b"another-topic-id")
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    assert manager(files).open("t", 0, bytes(16)).log_end_offset == 0, "a controller without ids is not asked for one"


@pytest.mark.parametrize("opened", [True, False])
def test_deleted_log_leaves_no_files_and_no_checkpoint(opened: bool) -> None:
    files = MemoryFiles()
    logs = manager(files)
    append_as_leader(logs.open("t", 0, TOPIC_ID), one_record(), leader_epoch=0, now_ms=1)
    logs.checkpoint([("t", 0, 1)])
    if not opened:
        logs.close()
        logs = manager(files)
    logs.delete("t", 0)
    assert not files.exists("t-0")
    assert logs.high_watermark("t", 0) == 0
    assert logs.open("t", 0, b"another-topic-id").log_end_offset == 0


def test_logs_apply_their_topic_config() -> None:
    files = MemoryFiles()
    log = manager(files, TopicConfig(max_message_bytes=10)).open("t", 0, TOPIC_ID)
    with pytest.raises(KafkaError) as refused:
        append_as_leader(log, one_record(), leader_epoch=0, now_ms=1)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_clean_shutdown_is_marked_only_if_every_log_was_closed() -> None:
    for failing in (False, True):
        files = FaultyFiles(MemoryFiles())
        logs = manager(files)
        fill(logs.open("t", 0, TOPIC_ID), 3)
        fill(logs.open("u", 0, TOPIC_ID), 3)
        files.failing_flush = failing
        logs.close()
        files.failing_flush = False
        assert files.exists(".kafka_cleanshutdown") != failing
        again = manager(files)
        assert again.open("t", 0, TOPIC_ID).scanned_segments == failing
        assert not files.exists(".kafka_cleanshutdown"), "this life has yet to earn its own"


def test_recovery_points_advance_with_flushes_and_decrease_with_truncations() -> None:
    files = FaultyFiles(MemoryFiles())
    config = TopicConfig(segment_bytes=300)
    logs = manager(files, config)
    log = logs.open("t", 0, TOPIC_ID)
    fill(log, 20)
    sealed = len(log.segments) - 1
    assert sealed > 3
    for flushed in range(1, sealed + 1):
        assert logs.flush_step()
        assert sum(path.endswith(".log") for path in files.flushed) == flushed, "one segment a step"
    assert not logs.flush_step()
    logs.checkpoint([])
    active = log.segments.active.base_offset
    assert files.read_file("recovery-point-offset-checkpoint") == f"0\n1\nt 0 {active}\n".encode()
    assert manager(files, config).open("t", 0, TOPIC_ID).scanned_segments == 1
    log.truncate_to(5)
    assert files.read_file("recovery-point-offset-checkpoint") == b"0\n1\nt 0 5\n", "at once"


@pytest.mark.parametrize("change", ["append", "cut", "retain", "compact", "flush"])
def test_checkpoint_visits_changed_logs_only(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = manager(MemoryFiles(), TopicConfig(segment_bytes=300, cleanup_policy="compact"))
    log, idle = logs.open("t", 0, TOPIC_ID), logs.open("idle", 0, TOPIC_ID)
    fill(log, 20)
    fill(idle, 20)
    if change != "flush":
        while logs.flush_step():
            pass
    logs.checkpoint([])
    looked_at: list[tuple[str, int]] = []
    monkeypatch.setattr(logs.directories[0], "take_offsets", lambda key, _: looked_at.append(key))
    logs.checkpoint([])
    assert looked_at == []
    match change:
        case "append":
            fill(log, 1)
        case "cut":
            log.truncate_to(18)
        case "retain":
            log.increment_log_start_offset(3)
        case "compact":
            while logs.clean_step({("t", 0): 20, ("idle", 0): 0}.__getitem__):
                pass
            assert log.cleaned_to > 0
        case "flush":
            assert logs.flush_step()
    logs.checkpoint([])
    assert looked_at == [("t", 0)]


@pytest.mark.parametrize("begins_anew", [True, False])
def test_deleted_segments_are_not_flushed(begins_anew: bool) -> None:
    logs = manager(MemoryFiles(), TopicConfig(segment_bytes=300))
    log = logs.open("t", 0, TOPIC_ID)
    fill(log, 20)
    if begins_anew:
        log.truncate_fully_and_start_at(30)
    else:
        log.increment_log_start_offset(log.log_end_offset)
    assert len(log.segments) == 1
    assert not logs.flush_step(), "the next step would find the same again, without end"


def test_maintenance_of_many_logs_runs_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_manager, "LOGS_PER_STEP", 2)
    files = MemoryFiles()
    logs = manager(files, TopicConfig(segment_bytes=300))
    for topic in "abcde":
        fill(logs.open(topic, 0, TOPIC_ID), 1)
    assert [logs.flush_step() for _ in range(4)] == [True, True, False, False], "there is nothing to flush"
    for topic in "abcde":
        fill(logs.open(topic, 0, TOPIC_ID), 20)
        logs.open(topic, 0, TOPIC_ID).increment_log_start_offset(1)
        logs.put_high_watermark(topic, 0, 1)
    starts, on_disk = logs.directories[0].log_starts, []
    for step, _ in enumerate(logs.checkpoint_steps()):
        on_disk.append((len(starts.offsets), [one.changed for one in logs.directories[0].checkpoints[:2]]))
        if step == 0:
            logs.delete("d", 0)
    assert on_disk == [
        (2, [True, True]),
        (3, [True, True]),
        (4, [False, True]),
        (4, [False, False]),
    ], "some logs, then one file a step; the deleted log has no offsets"


def test_failed_flush_ends_the_flush_steps(caplog: pytest.LogCaptureFixture) -> None:
    files = FaultyFiles(MemoryFiles())
    logs = manager(files, TopicConfig(segment_bytes=300))
    fill(logs.open("t", 0, TOPIC_ID), 20)
    files.failing_flush = True
    assert not logs.flush_step()
    assert not logs.flush_step()
    assert caplog.text.count("takes no more appends") == 1


def test_failed_flush_of_a_log_does_not_prevent_flushes_of_others(caplog: pytest.LogCaptureFixture) -> None:
    """One log has an epoch to write to a full disk; the other needs no space."""
    files = FaultyFiles(MemoryFiles())
    logs = manager(files, TopicConfig(segment_bytes=300))
    refused, other = (logs.open(topic, 0, TOPIC_ID) for topic in ("a", "b"))
    fill(refused, 20)
    fill(other, 20)
    files.full = True
    refused.epochs.assign(4, 20)
    for _ in range(2):
        caplog.clear()
        other.durability.recovery_point = 0
        other.touched()
        while logs.flush_step():
            pass
        assert (refused.recovery_point, other.recovery_point) == (0, other.segments.active.base_offset)
        assert len(caplog.messages) == 1, "once a turn"
    files.full = False
    assert logs.flush_step(), "it comes again"


def test_failing_directory_does_not_prevent_checkpoints_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disks = {path: FaultyFiles(MemoryFiles()) for path in ("/a", "/b")}
    logs = LogManager(disks, BrokerSettings(), lambda _: TopicConfig(), lambda: 0)
    logs.load_checkpoints()
    for topic in ("on-a", "on-b"):
        logs.open(topic, 0, TOPIC_ID)
    disks["/a"].full = True
    logs.checkpoint([("on-a", 0, 5), ("on-b", 0, 6)])
    assert [disk.read_file("replication-offset-checkpoint") for disk in disks.values()] == [None, b"0\n1\non-b 0 6\n"]
    assert [line for line in caplog.messages if "/a" in line and "no space" in line]
    disks["/a"].full = False
    logs.checkpoint([])
    assert disks["/a"].read_file("replication-offset-checkpoint") == b"0\n1\non-a 0 5\n"


def test_deleted_logs_are_kept_for_file_delete_delay_ms() -> None:
    files = MemoryFiles()
    now_ms = 1000
    logs = manager(files, TopicConfig(file_delete_delay_ms=500), lambda: now_ms)
    fill(logs.open("t", 0, TOPIC_ID), 1)
    logs.delete("t", 0)
    fill(logs.open("t", 0, b"another-topic-id"), 2)
    logs.delete("t", 0)
    waiting = [name for name in files.names("") if name.endswith("-delete")]
    assert len(waiting) == 2
    assert all(name.startswith("t-0.") and files.exists(f"{name}/{0:020d}.log") for name in waiting)
    now_ms += 499
    assert not list(logs.remove_deleted())
    assert len([name for name in files.names("") if name.endswith("-delete")]) == 2
    now_ms += 1
    left = [sum(name.endswith("-delete") for name in files.names("")) for _ in logs.remove_deleted()]
    assert left == [1, 0], "one log a step"
    assert not [name for name in files.names("") if name.endswith("-delete")]
    fill(logs.open("t", 0, TOPIC_ID), 1)
    logs.delete("t", 0)
    manager(files)
    assert not [name for name in files.names("") if name.endswith("-delete")], "the next start removes them"


def test_log_that_is_made_again_does_not_begin_where_the_former_one_began() -> None:
    files = MemoryFiles()
    first = manager(files, TopicConfig(file_delete_delay_ms=0))
    fill(first.open("t", 0, TOPIC_ID), 20)
    first.open("t", 0, TOPIC_ID).increment_log_start_offset(5)
    first.checkpoint([("t", 0, 20)])
    first.delete("t", 0)
    fill(first.open("t", 0, TOPIC_ID), 8)
    after_crash = manager(files)
    again = after_crash.open("t", 0, TOPIC_ID)
    assert (again.log_start_offset, again.log_end_offset, again.durability.reached) == (0, 8, 0)
    assert after_crash.high_watermark("t", 0) == 0


def test_log_that_is_truncated_to_before_its_start_begins_there_after_a_crash() -> None:
    files = MemoryFiles()
    first = manager(files)
    log = first.open("t", 0, TOPIC_ID)
    fill(log, 20)
    log.increment_log_start_offset(10)
    first.checkpoint([])
    log.truncate_fully_and_start_at(3)
    fill(log, 4)
    again = manager(files).open("t", 0, TOPIC_ID)
    assert (again.log_start_offset, again.log_end_offset) == (3, 7)


@pytest.mark.parametrize("longer", [0, 1])
def test_of_two_logs_the_one_with_the_newest_segment_is_used(longer: int) -> None:
    by_path = {"a": MemoryFiles(), "b": MemoryFiles()}
    for number, files in enumerate(by_path.values()):
        fill(manager(files, TopicConfig(segment_bytes=300)).open("t", 0, TOPIC_ID), 30 if number == longer else 3)
    logs = LogManager(by_path, BrokerSettings(), lambda _: TopicConfig(), lambda: 0)
    logs.load_checkpoints()
    assert logs.open("t", 0, TOPIC_ID).log_end_offset == 30


def lose_second_segment(files: Files, log: PartitionLog) -> int:
    lost = list(log.segments)[1].base_offset
    for suffix in ("log", "index", "timeindex", "txnindex"):
        files.write_file(f"t-0/{lost:020d}.{suffix}", b"")
    return lost


@pytest.mark.parametrize("emptied", [False, True])
def test_lost_segment_of_a_compacted_log_that_was_never_flushed_ends_the_log(emptied: bool) -> None:
    files = MemoryFiles()
    config = TopicConfig(segment_bytes=300, cleanup_policy="compact")
    logs = manager(files, config)
    log = logs.open("t", 0, TOPIC_ID)
    if emptied:
        fill(log, 9)
        log.flush()
        logs.checkpoint([])
        log.truncate_fully_and_start_at(0)
        logs.checkpoint([])
    fill(log, 20)
    lost = lose_second_segment(files, log)
    again = manager(files, config).open("t", 0, TOPIC_ID)
    assert (again.log_end_offset, again.durability.reached) == (lost, log.segments.active.base_offset)


@pytest.mark.parametrize("content", [None, b"damaged"])
def test_compacted_log_keeps_its_gaps_without_the_checkpoint_of_recovery_points(content: bytes | None) -> None:
    files = MemoryFiles()
    config = TopicConfig(segment_bytes=300, cleanup_policy="compact")
    logs = manager(files, config)
    log = logs.open("t", 0, TOPIC_ID)
    fill(log, 20)
    while logs.clean_step(lambda _: 20):
        pass
    assert not next(iter(log.segments)).file.size_bytes, "a gap"
    files.remove("recovery-point-offset-checkpoint")
    if content is not None:
        files.write_file("recovery-point-offset-checkpoint", content)
    for _ in range(2):  # another log's checkpoint replaces the file before this log is flushed again
        logs = manager(files, config)
        fill(logs.open("other", 0, TOPIC_ID), 20)
        while logs.flush_step():
            pass
        logs.checkpoint([])
        assert b"other 0" in (files.read_file("recovery-point-offset-checkpoint") or b"")
    assert manager(files, config).open("t", 0, TOPIC_ID).log_end_offset == 20
