"""The blocking reader against real brokers: ranges, compression, control batches, retention, leaders that go away."""

from __future__ import annotations

import socket
import threading

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.records.control import build_end_transaction
from spark_jobs.reader import EARLIEST, LATEST, TopicReader
from tests.spark_jobs.live import LiveCluster


def numbered(count: int, *, partition: int = 0) -> list[tuple[int, bytes, bytes]]:
    return [(partition, b"k%d" % number, b"v%d" % number) for number in range(count)]


def offsets_read(reader: TopicReader, topic: str, start: int, end: int, index: int = 0) -> list[int]:
    return [record.offset for batch in reader.read(topic, index, start, end) for record in batch]


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_whole_from_any_range(live: LiveCluster, compression: str | None) -> None:
    topic = live.create(f"read-{compression}", 2)
    live.produce(topic, numbered(300), headers=[("h", b"1"), ("none", None)], compression=compression)
    with TopicReader(live.servers) as reader:
        assert reader.partitions(topic) == [0, 1]
        assert reader.offsets(topic, EARLIEST) == {0: 0, 1: 0}
        assert reader.offsets(topic, LATEST) == {0: 300, 1: 0}
        records = [record for batch in reader.read(topic, 0, 0, 300) for record in batch]
        assert [(record.offset, record.key, record.value) for record in records] == [
            (number, key, value) for number, (_, key, value) in enumerate(numbered(300))
        ]
        assert {record.headers for record in records} == {(("h", b"1"), ("none", None))}
        assert offsets_read(reader, topic, 17, 205) == list(range(17, 205))
        assert offsets_read(reader, topic, 299, 300) == [299]
        assert offsets_read(reader, topic, 5, 5) == []


def test_control_batches_are_passed_over(live: LiveCluster) -> None:
    topic = live.create("read-control", 1)
    live.produce(topic, numbered(3))
    marker = build_end_transaction(
        commit=True, producer_id=900, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1_700_000_000_000
    )
    replicas = live.cluster.nodes[live.leader(topic, 0)].services.replicas
    live.run(replicas.append(topic, 0, marker, acks=-1, timeout_ms=5000, origin="coordinator"))
    live.produce(topic, numbered(2))
    with TopicReader(live.servers) as reader:
        assert reader.offsets(topic, LATEST) == {0: 6}
        assert offsets_read(reader, topic, 0, 6) == [0, 1, 2, 4, 5]
        assert offsets_read(reader, topic, 3, 4) == []


def test_what_retention_took_is_passed_over(live: LiveCluster) -> None:
    topic = live.create("read-retention", 1)
    live.produce(topic, numbered(20))
    log = live.cluster.nodes[live.leader(topic, 0)].services.replicas.partition(topic, 0).log

    async def expire() -> None:
        log.increment_log_start_offset(12)

    live.run(expire())
    with TopicReader(live.servers) as reader:
        assert offsets_read(reader, topic, 0, 20) == list(range(12, 20))
        assert offsets_read(reader, topic, 3, 10) == []
        assert reader.offsets(topic, EARLIEST) == {0: 12}


def test_a_partition_that_is_gone_is_passed_over(live: LiveCluster) -> None:
    topic = live.create("read-gone", 1)
    with TopicReader(live.servers, patience_s=0.2) as reader:
        assert offsets_read(reader, topic, 0, 10, index=3) == []


def test_an_end_that_never_comes_is_an_error(live: LiveCluster) -> None:
    topic = live.create("read-end", 1)
    live.produce(topic, numbered(2))
    with TopicReader(live.servers, patience_s=0.3) as reader:
        batches = reader.read(topic, 0, 0, 5)
        assert len(next(batches)) > 0
        with pytest.raises(TimeoutError, match="read-end-0 ends at offset 2, before 5"):
            list(batches)


def test_a_topic_that_does_not_exist_is_refused(live: LiveCluster) -> None:
    with TopicReader(live.servers, patience_s=0.2) as reader, pytest.raises(KafkaError) as refusal:
        reader.partitions("no-such-topic")
    assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_has_an_identity(live: LiveCluster) -> None:
    one, other = live.create("read-id-1", 1), live.create("read-id-2", 1)
    with TopicReader(live.servers) as reader:
        assert reader.topic_id(one) == reader.topic_id(one) != reader.topic_id(other)


def test_an_offset_beyond_the_log_is_an_error_and_not_silence(live: LiveCluster) -> None:
    topic = live.create("read-beyond", 1)
    live.produce(topic, numbered(2))
    with TopicReader(live.servers, patience_s=0.3) as reader, pytest.raises(KafkaError) as refusal:
        list(reader.read(topic, 0, 50, 60))
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("servers", ["", "localhost", "localhost:port", ","])
def test_nonsense_for_servers_is_refused(servers: str) -> None:
    with pytest.raises(ValueError, match=r"host:port|127\.0\.0\.1:9092"):
        TopicReader(servers)


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with TopicReader(f"127.0.0.1:{port}", patience_s=0.2) as reader, pytest.raises(ConnectionRefusedError):
        reader.partitions("any")


@pytest.mark.parametrize("orderly", [True, False], ids=["stopped", "crashed"])
def test_a_read_goes_on_with_the_next_leader(orderly: bool) -> None:
    with LiveCluster(3) as live:
        topic = live.create("moving", 1, replicas=3)
        for _ in range(5):
            live.produce(topic, numbered(20))
        victim = live.leader(topic, 0)
        with TopicReader(live.servers) as reader:
            # The first fetch brings what there is; the rest is written after the leader went, and waited for.
            batches = reader.read(topic, 0, 0, 120)
            offsets = [record.offset for record in next(batches)]
            live.run(live.cluster.stop_broker(victim) if orderly else live.cluster.crash_broker(victim))
            writer = threading.Thread(target=live.produce, args=(topic, numbered(20)))
            writer.start()
            offsets += [record.offset for batch in batches for record in batch]
            writer.join()
        assert offsets == list(range(120))
        assert live.leader(topic, 0) != victim


def test_a_broker_that_was_away_is_connected_to_again() -> None:
    with LiveCluster(3) as live:
        topic = live.create("returning", 1)
        live.produce(topic, numbered(5))
        leader = live.leader(topic, 0)
        with TopicReader(live.servers, patience_s=5.0) as reader:
            assert offsets_read(reader, topic, 0, 5) == list(range(5))
            live.run(live.cluster.crash_broker(leader))
            live.run(live.cluster.start_broker(leader))
            assert offsets_read(reader, topic, 0, 5) == list(range(5))
