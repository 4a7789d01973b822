"""The log manager: what it remembers across lives, and what it refuses to take for its own."""

from __future__ import annotations

import pytest

from broker.config import BrokerSettings, TopicConfig
from broker.storage.checkpoints import decode_checkpoint, encode_checkpoint
from broker.storage.files import MemoryFiles
from broker.storage.log_manager import LogManager, read_topic_id
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import BatchBuilder

TOPIC_ID = bytes(range(16))


def manager(files: MemoryFiles, config: TopicConfig | None = None) -> LogManager:
    logs = LogManager(files, BrokerSettings(), lambda _: config or TopicConfig(), lambda: 0)
    logs.load_checkpoints()
    return logs


def one_record() -> bytes:
    builder = BatchBuilder()
    builder.append(b"k", b"v", timestamp_ms=1)
    return builder.build()


def test_checkpoints_are_written_as_kafka_writes_them() -> None:
    content = encode_checkpoint({("b-topic", 1): 7, ("a", 10): 0})
    assert content == b"0\n2\na 10 0\nb-topic 1 7\n"
    assert decode_checkpoint(content) == {("a", 10): 0, ("b-topic", 1): 7}


@pytest.mark.parametrize("content", [b"", b"0\n", b"0\n2\na 1 5\n", b"1\n0\n", b"0\n1\na one 5\n", b"\xff\xfe"])
def test_a_damaged_checkpoint_is_no_reason_not_to_start(content: bytes) -> None:
    files = MemoryFiles()
    files.write_file("replication-offset-checkpoint", content)
    assert manager(files).high_watermark("a", 1) == 0


def test_high_watermarks_and_log_starts_survive() -> None:
    files = MemoryFiles()
    first = manager(files)
    log = first.open("t", 0, TOPIC_ID)
    for _ in range(5):
        log.append_as_leader(one_record(), leader_epoch=0, now_ms=1)
    log.increment_log_start_offset(2)
    first.checkpoint([("t", 0, 4)])
    first.close()

    second = manager(files)
    assert second.high_watermark("t", 0) == 4
    again = second.open("t", 0, TOPIC_ID)
    assert (again.log_start_offset, again.log_end_offset) == (2, 5)


def test_partitions_that_are_not_open_keep_their_checkpoint() -> None:
    files = MemoryFiles()
    first = manager(files)
    first.checkpoint([("t", 0, 4), ("u", 0, 9)])
    second = manager(files)
    second.checkpoint([("t", 0, 5)])
    third = manager(files)
    assert (third.high_watermark("t", 0), third.high_watermark("u", 0)) == (5, 9)


def test_the_directory_remembers_its_topic() -> None:
    files = MemoryFiles()
    manager(files).open("t", 0, TOPIC_ID)
    assert read_topic_id(files.read_file("t-0/partition.metadata")) == TOPIC_ID
    with pytest.raises(KafkaError) as refused:
        manager(files).open("t", 0, b"another-topic-id")
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    assert manager(files).open("t", 0, bytes(16)).log_end_offset == 0, "a controller without ids is not asked for one"


@pytest.mark.parametrize("opened", [True, False])
def test_a_deleted_log_leaves_nothing(opened: bool) -> None:
    files = MemoryFiles()
    logs = manager(files)
    logs.open("t", 0, TOPIC_ID).append_as_leader(one_record(), leader_epoch=0, now_ms=1)
    logs.checkpoint([("t", 0, 1)])
    if not opened:
        logs.close()
        logs = manager(files)
    logs.delete("t", 0)
    assert not files.exists("t-0")
    assert logs.high_watermark("t", 0) == 0
    assert logs.open("t", 0, b"another-topic-id").log_end_offset == 0


def test_logs_are_held_to_their_topics_configuration() -> None:
    files = MemoryFiles()
    log = manager(files, TopicConfig(max_message_bytes=10)).open("t", 0, TOPIC_ID)
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(one_record(), leader_epoch=0, now_ms=1)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
