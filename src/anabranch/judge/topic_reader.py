"""Reads a whole topic with librdkafka. The one module here that imports confluent_kafka."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from anabranch.judge.records import StoredRecord

BATCH: Final = 1000
POLL_S: Final = 0.5
ASK_S: Final = 2.0
TIMEOUT_S: Final = 30.0
REMOVED: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)
SequenceOf = Callable[[Message], int]


class ReadTopic(NamedTuple):
    """What was read of a topic."""

    records: list[StoredRecord]
    ranges: dict[int, range]
    """Partition -> its offsets from the log start to the end that the read reached; none of a partition that was
    removed meanwhile.
    """


class NoSequence(ValueError):
    """A record has no number; the message says where it was looked for."""


def sequence_of(rule: str) -> SequenceOf:
    """How a record's number is found: `header:NAME`, or `value:REGEX` with one group. Raises ValueError."""
    where, _, what = rule.partition(":")
    if where == "header" and what:
        return lambda record: _number(dict(record.headers() or ()).get(what), record, rule)
    pattern = _pattern(what) if where == "value" and what else None
    if pattern is None or pattern.groups != 1:
        raise ValueError(f"{rule!r}: write header:NAME, or value:REGEX with one group")

    def in_value(record: Message) -> int:
        found = pattern.search(record.value() or b"")
        return _number(found and found[1], record, rule)

    return in_value


def _pattern(text: str) -> re.Pattern[bytes] | None:
    try:
        return re.compile(text.encode())
    except re.error:
        return None


def _number(found: Any, record: Message, rule: str) -> int:
    try:
        return int(found)
    except (TypeError, ValueError):
        place = f"{record.partition()}@{record.offset()}"
        raise NoSequence(f"the record at {place} has no number by {rule}: {found!r}") from None


def read_topic(
    servers: str, topic: str, sequence: SequenceOf, properties: Mapping[str, str] | None = None
) -> ReadTopic:
    """Read all committed records of a topic up to its present end.

    Records that are deleted during the read may be missing; the log starts are those after it. Raises NoSequence,
    ValueError for an unknown topic, and OSError for an error of librdkafka, or if nothing comes for TIMEOUT_S.
    """
    settings = {"group.id": "anabranch-judge", "enable.auto.commit": False, "isolation.level": "read_committed"}
    settings |= {"enable.partition.eof": True, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": servers, **settings, **(properties or {})})
    ends: dict[int, int] = {}
    try:
        starts = _starts(consumer, topic)
        consumer.assign([TopicPartition(topic, one, start) for one, start in starts.items()])
        records = list(_until_ends(consumer, topic, set(starts), sequence, ends))
        after = _starts(consumer, topic)
        return ReadTopic(records, {one: range(after[one], end) for one, end in ends.items() if one in after})
    except KafkaException as error:
        raise OSError(f"{servers}: {error.args[0].str()}") from None
    finally:
        consumer.close()


def _starts(consumer: Any, topic: str) -> dict[int, int]:
    """The log start offset of each partition."""
    starts = {}
    for partition in sorted(_partitions(consumer, topic, TIMEOUT_S)):
        with _unless_removed():
            starts[partition], _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)
    return starts


def _partitions(consumer: Any, topic: str, timeout_s: float) -> set[int]:
    found = consumer.list_topics(topic, timeout_s).topics[topic]
    if found.error is not None:
        raise ValueError(f"topic {topic}: {found.error.str()}")
    return set(found.partitions)


@contextlib.contextmanager
def _unless_removed() -> Iterator[None]:
    """A resized topic loses its empty partitions, also after they were listed."""
    try:
        yield
    except KafkaException as error:
        if error.args[0].code() not in REMOVED:
            raise


def _until_ends(
    consumer: Any, topic: str, unread: set[int], sequence: SequenceOf, ends: dict[int, int]
) -> Iterator[StoredRecord]:
    """Yield all records; `ends` gets the end of each partition that is read."""
    heard_s = time.perf_counter()
    while unread:
        if batch := consumer.consume(BATCH, POLL_S):
            heard_s = time.perf_counter()
        else:  # librdkafka asks for a removed partition again and again, and says nothing
            with contextlib.suppress(KafkaException):
                unread &= _partitions(consumer, topic, ASK_S)
        if unread and time.perf_counter() - heard_s > TIMEOUT_S:
            raise OSError(f"nothing came for {TIMEOUT_S:g} s, and not all is read of: {_positions(consumer, unread)}")
        for record in batch:
            error = record.error()
            if error is None:
                epoch, number = record.leader_epoch(), sequence(record)
                yield StoredRecord(
                    record.partition(),
                    record.offset(),
                    record.key(),
                    number,
                    leader_epoch=-1 if epoch is None else epoch,
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                ends.setdefault(record.partition(), record.offset())
                unread.discard(record.partition())
            elif error.code() in REMOVED:
                unread.discard(record.partition())
            else:
                raise KafkaException(error)


def _positions(consumer: Any, partitions: set[int]) -> str:
    """The next offset of each of these partitions, for a message."""
    assigned = [one for one in consumer.assignment() if one.partition in partitions]
    return ", ".join(f"{one.partition}@{max(one.offset, 0)}" for one in sorted(consumer.position(assigned)))
