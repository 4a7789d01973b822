"""Reads ranges of offsets with librdkafka, on Spark's executors.

A range may have fewer records than offsets: markers, compaction and aborted transactions leave gaps. So a range ends
with a record at or beyond its end, or with the end of the log. librdkafka handles leaders that die or move;
`timeout_s` without progress is an error.

While brokers restarted, a consumer of librdkafka 2.16 was seen to read nothing for a minute, and then to hang in
`close`. So a stuck consumer is replaced by another, and its end is not awaited.

Invariant: every existing record of the range is read exactly once, in order. A log that begins within the range is an
error (`LostRecords`), or skipped on request; one that ends before it is always an error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from anabranch.spark_jobs.ranges import OffsetRange

RECORDS_PER_BATCH: Final = 20_000
POLL_S: Final = 0.05
LOOK_UP_S: Final = 10.0
SILENCE_S: Final = 1.0
"""After this time without a record the partition's existence is checked, because librdkafka does not report a missing
one."""
GONE_TIMEOUT_S: Final = 30.0
"""How long a partition may be missing: a broker that has just started knows no topics until a controller sends them."""
FRESH_START_S: Final = 15.0
"""After this time without a record another consumer is tried: longer than an election takes."""
CLOSE_TIMEOUT_S: Final = 5.0
END: Final = "the end of a consumer"
"""The name of the thread that closes a consumer."""


class LostRecords(RuntimeError):
    """Records of a range no longer exist."""


class RangeReader:
    """A consumer without a group. Reads a range at a time; keeps its connections in between."""

    def __init__(self, servers: str, client: Mapping[str, Any], *, timeout_s: float = 60.0) -> None:
        self._timeout_s = timeout_s
        self._settings: dict[str, Any] = {
            "bootstrap.servers": servers,
            "client.id": "anabranch-source",
            "group.id": "anabranch-source",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_uncommitted",
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
            "queued.min.messages": 2 * RECORDS_PER_BATCH,
            "reconnect.backoff.max.ms": 1000,
            "topic.metadata.propagation.max.ms": 1000,
            "log_level": 0,
            "error_cb": lambda _: None,  # raised later, by the blocked read
            **client,
        }
        self._consumer = Consumer(self._settings)

    def close(self) -> None:
        """Disconnect; a consumer that takes too long to close is left to its thread."""
        _closing(self._consumer).join(CLOSE_TIMEOUT_S)

    def __enter__(self) -> RangeReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, offset_range: OffsetRange, *, fail_on_data_loss: bool = True) -> Iterator[list[Message]]:
        """Yield the records of a range, some thousand at a time. Raises LostRecords, TimeoutError, KafkaException."""
        self._begin(offset_range, offset_range.start)
        try:
            yield from self._records(offset_range, fail_on_data_loss)
        finally:
            self._consumer.unassign()

    def _begin(self, offset_range: OffsetRange, position: int) -> None:
        self._consumer.assign([TopicPartition(offset_range.topic, offset_range.partition, position)])

    def _records(self, offset_range: OffsetRange, fail_on_data_loss: bool) -> Iterator[list[Message]]:
        position = offset_range.start
        watch = _Watch(self._timeout_s)
        while position < offset_range.end:
            before, records = position, []
            for message in self._consumer.consume(min(RECORDS_PER_BATCH, offset_range.end - position), POLL_S):
                error, offset = message.error(), message.offset() or 0
                if error is None:
                    if offset < offset_range.end:
                        records.append(message)
                    position = max(position, offset + 1)
                elif error.code() == KafkaError._PARTITION_EOF:
                    position = max(position, offset)
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    position = self._begin_later(offset_range, position, fail_on_data_loss)
                elif error.fatal() or not error.retriable():
                    raise KafkaException(error)
            if records:
                yield records
            if position > before:
                watch.progress()
            elif watch.is_silent() and watch.gone(missing=self._missing(offset_range)):
                _lose(
                    f"{_name(offset_range)} was deleted, with offsets {position} to {offset_range.end - 1}",
                    fail_on_data_loss,
                )
                return
            elif watch.stuck():
                _closing(self._consumer)
                self._consumer = Consumer(self._settings)
                self._begin(offset_range, position)
            elif watch.over():
                raise TimeoutError(f"{_name(offset_range)} has no records from offset {position} to {offset_range.end}")

    def _begin_later(self, offset_range: OffsetRange, position: int, fail_on_data_loss: bool) -> int:
        """Return the offset to continue at when `position` is out of range. Raises LostRecords."""
        try:
            low, high = self._consumer.get_watermark_offsets(_partition(offset_range), timeout=LOOK_UP_S)
        except KafkaException:  # no broker answers: retry until the timeout
            low = high = position
        if low > position:
            missing = min(low, offset_range.end)
            _lose(f"{_name(offset_range)} begins at offset {low} now; {position} to {missing - 1}", fail_on_data_loss)
            position = missing
        elif high < position:
            raise LostRecords(f"{_name(offset_range)} ends at offset {high}, and was to be read from {position} on")
        self._begin(offset_range, position)
        return position

    def _missing(self, offset_range: OffsetRange) -> bool:
        """Whether a broker answers and does not know the partition."""
        try:
            topic = self._consumer.list_topics(offset_range.topic, timeout=LOOK_UP_S).topics.get(offset_range.topic)
        except KafkaException:
            return False
        if topic is None or topic.error is not None:
            return topic is None or topic.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        return offset_range.partition not in topic.partitions


class _Watch:
    """Measures the time without records, and how long the partition was missing during it."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self.progress()

    def progress(self) -> None:
        """Note that a record has arrived."""
        self._progress_s = self._checked_s = self._fresh_s = time.perf_counter()
        self._missing_s: float | None = None

    def is_silent(self) -> bool:
        """Whether to check (again) that the partition exists."""
        now_s = time.perf_counter()
        if now_s - self._checked_s < min(SILENCE_S, self._timeout_s / 2):
            return False
        self._checked_s = now_s
        return True

    def gone(self, *, missing: bool) -> bool:
        """Whether the partition has been missing for so long that it counts as removed."""
        now_s = time.perf_counter()
        self._missing_s = (self._missing_s or now_s) if missing else None
        return self._missing_s is not None and now_s - self._missing_s >= min(GONE_TIMEOUT_S, self._timeout_s / 2)

    def stuck(self) -> bool:
        """Whether to try another consumer."""
        now_s = time.perf_counter()
        if now_s - self._fresh_s < min(FRESH_START_S, self._timeout_s / 2):
            return False
        self._fresh_s = now_s
        return True

    def over(self) -> bool:
        """Whether no record has arrived for `timeout_s`."""
        return time.perf_counter() - self._progress_s > self._timeout_s


def _closing(consumer: Consumer) -> threading.Thread:
    """Return a thread that closes a consumer, which may hang."""
    thread = threading.Thread(target=consumer.close, name=END, daemon=True)
    thread.start()
    return thread


def _lose(what: str, fail_on_data_loss: bool) -> None:
    if fail_on_data_loss:
        raise LostRecords(f"{what} were not read (failOnDataLoss=false skips them)")


def _partition(offset_range: OffsetRange) -> TopicPartition:
    return TopicPartition(offset_range.topic, offset_range.partition)


def _name(offset_range: OffsetRange) -> str:
    return f"{offset_range.topic}-{offset_range.partition}"
