"""Opening, filling and reading logs in tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings, TopicConfig
from anabranch.broker.storage.files import Files
from anabranch.broker.storage.log import LogSettings, PartitionLog
from anabranch.broker.storage.log_append import AppendInfo, append_as_leader
from anabranch.broker.storage.log_manager import LogManager
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import BatchHeader, iter_batches
from anabranch.protocol.records.batch_builder import BatchBuilder
from tests.broker.storage.batches import NOW_MS, batch

TOPIC_ID = bytes(range(16))
SMALL = LogSettings(segment_bytes=1000, index_interval_bytes=200)


def opened(files: Files, settings: LogSettings = SMALL, *, log_start_offset: int = 0) -> PartitionLog:
    return PartitionLog.open(files, "t-0", settings, NOW_MS, log_start_offset=log_start_offset)


def append(log: PartitionLog, records: bytes | None = None, *, epoch: int = 1, now_ms: int = NOW_MS) -> AppendInfo:
    return append_as_leader(log, batch() if records is None else records, leader_epoch=epoch, now_ms=now_ms)


def everything(log: PartitionLog) -> list[BatchHeader]:
    """The headers of all batches, read the way a consumer does."""
    offset, headers = log.log_start_offset, []
    while offset < log.log_end_offset:
        data = log.read(offset, 500)
        found = [header for _, header in iter_batches(data)]
        assert sum(header.size_bytes for header in found) == len(data), "whole batches only"
        assert found[0].base_offset <= offset <= found[0].last_offset
        headers += found
        offset = headers[-1].next_offset
    return headers


def code_of(action: object, *arguments: object, **options: object) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        action(*arguments, **options)  # type: ignore[operator]
    return refusal.value.code


def manager(files: Files, config: TopicConfig | None = None, clock_ms: Callable[[], int] = lambda: 0) -> LogManager:
    logs = LogManager(files, BrokerSettings(), lambda _: config or TopicConfig(), clock_ms)
    logs.load_checkpoints()
    return logs


def one_record() -> bytes:
    builder = BatchBuilder()
    builder.append(b"k", b"v", timestamp_ms=1)
    return builder.build()


def fill(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        append_as_leader(log, one_record(), leader_epoch=0, now_ms=1)
