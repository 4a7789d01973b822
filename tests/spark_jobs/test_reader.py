"""The driver's blocking client on real brokers: topics, start and end offsets."""

from __future__ import annotations

import pytest

from anabranch.protocol.apis.metadata import MetadataRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.spark_jobs.reader import EARLIEST, LATEST, PartitionGone, TopicReader
from tests.spark_jobs.happenings import begin_transaction, expire
from tests.spark_jobs.live import LiveCluster


def numbered(count: int, *, partition: int = 0) -> list[tuple[int, bytes, bytes]]:
    return [(partition, b"k%d" % number, b"v%d" % number) for number in range(count)]


def test_beginning_and_end_offsets_of_partitions(live: LiveCluster) -> None:
    topic = live.create("bounds", 3)
    live.produce(topic, numbered(20, partition=2))
    expire(live, topic, 2, 12)
    with TopicReader(live.servers) as reader:
        assert reader.partitions(topic) == [0, 1, 2]
        assert reader.offsets(topic, EARLIEST) == {0: 0, 1: 0, 2: 12}
        assert reader.offsets(topic, LATEST) == {0: 0, 1: 0, 2: 20}
        assert reader.offsets(topic, {2: 0, 0: 0}) == {2: 12, 0: -1}, "from a time on"
        assert topic in reader.topics()


def test_read_committed_end_is_start_of_oldest_open_transaction(live: LiveCluster) -> None:
    topic = live.create("open", 1)
    live.produce(topic, numbered(3))
    abort = begin_transaction(live, topic, [(0, b"k", b"v")])
    live.produce(topic, numbered(2))
    with TopicReader(live.servers) as reader:
        assert reader.offsets(topic, LATEST) == {0: 6}
        assert reader.offsets(topic, LATEST, committed_only=True) == {0: 3}
    abort()


@pytest.mark.parametrize("address", [("a..b", 9092), ("a\0b", 9092), ("127.0.0.1", 70000)])
def test_broker_that_names_an_impossible_address_does_not_respond(address: tuple[str, int]) -> None:
    with TopicReader("127.0.0.1:1") as reader, pytest.raises(ConnectionError, match="did not respond"):
        reader._ask(address, MetadataRequest(topics=[]))


def test_missing_partition_is_named(live: LiveCluster) -> None:
    topic = live.create("no-such-partition", 1)
    with TopicReader(live.servers, timeout_s=0.2) as reader, pytest.raises(PartitionGone, match="no-such-partition-3"):
        reader.offsets(topic, {3: 0})


def test_missing_topic_is_refused(live: LiveCluster) -> None:
    with TopicReader(live.servers, timeout_s=0.2) as reader, pytest.raises(KafkaError) as refusal:
        reader.partitions("no-such-topic")
    assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topic_id_is_read(live: LiveCluster) -> None:
    one, other = live.create("read-id-1", 1), live.create("read-id-2", 1)
    with TopicReader(live.servers) as reader:
        assert reader.topic_id(one) == reader.topic_id(one) != reader.topic_id(other)


@pytest.mark.parametrize("servers", ["", "localhost", "localhost:port", ","])
def test_malformed_servers_are_refused(servers: str) -> None:
    with pytest.raises(ValueError, match=r"host:port|127\.0\.0\.1:9092"):
        TopicReader(servers)


def test_unreachable_broker_is_a_connection_error() -> None:
    with (
        TopicReader("127.0.0.1:1", timeout_s=0.2) as reader,
        pytest.raises(ConnectionError, match=r"no broker responded at 127\.0\.0\.1:1: .*refused"),
    ):
        reader.partitions("any")


def test_broker_that_returns_is_connected_again() -> None:
    with LiveCluster(3) as live:
        topic = live.create("returning", 1)
        live.produce(topic, numbered(5))
        leader = live.leader(topic, 0)
        with TopicReader(live.servers, timeout_s=30.0) as reader:
            assert reader.offsets(topic, LATEST) == {0: 5}
            live.run(live.cluster.crash_broker(leader))
            live.run(live.cluster.start_broker(leader))
            assert reader.offsets(topic, EARLIEST) == {0: 0}
