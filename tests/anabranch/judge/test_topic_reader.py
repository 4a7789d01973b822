"""A topic is read whole, by librdkafka, with the numbers of its records."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from confluent_kafka import Producer

from anabranch.clients.topic_admin import NewTopic
from anabranch.judge import topic_reader
from anabranch.judge.topic_reader import NoSequence, read_topic, sequence_of
from anabranch.protocol.topic_partition import TopicPartition
from anabranch.testing.running_cluster import RunningCluster
from tests.anabranch.judge.conftest import COUNTS, KEYS, ROUNDS, ResizedTopic


@pytest.mark.parametrize("rule", ["header:sequence", r"value:/(\d+)$"])
def test_all_records_are_read_with_their_numbers(resized: ResizedTopic, rule: str) -> None:
    records, ranges = read_topic(resized.servers, resized.name, sequence_of(rule))
    assert len(records) == resized.records
    assert Counter(one.key for one in records) == dict.fromkeys(
        (b"key-%d" % number for number in range(KEYS)), ROUNDS * len(COUNTS)
    )
    assert {one.sequence for one in records} == set(range(ROUNDS * len(COUNTS)))
    assert {(one.partition, one.offset) for one in records} == {
        (index, offset) for index, offsets in ranges.items() for offset in offsets
    }


def test_record_without_a_number_is_refused_with_its_place(resized: ResizedTopic) -> None:
    with pytest.raises(NoSequence, match=r"the record at \d@0 has no number by header:nosuch"):
        read_topic(resized.servers, resized.name, sequence_of("header:nosuch"))


def test_unknown_topic_is_refused(resized: ResizedTopic) -> None:
    with pytest.raises(ValueError, match=r"topic nosuch: .*Unknown topic"):
        read_topic(resized.servers, "nosuch", sequence_of("header:sequence"), {"allow.auto.create.topics": "false"})


@pytest.mark.parametrize("rule", ["", "header:", "offset:x", "value:", "value:(", r"value:/\d+", r"value:(\d)(\d)"])
def test_unknown_rule_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match="write header:NAME, or value:REGEX with one group"):
        sequence_of(rule)


def test_partition_that_gives_nothing_is_named_in_place_of_a_wait_for_ever(
    anabranch_cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_reader, "TIMEOUT_S", 2.0)
    anabranch_cluster.admin.create_topics([NewTopic(name="silent", partitions=2, replication_factor=1)])
    with (
        anabranch_cluster.faults(api="Fetch", hold=True),
        pytest.raises(OSError, match=r"nothing came for 2 s.*: 0@0, 1@0"),
    ):
        read_topic(anabranch_cluster.bootstrap_servers, "silent", sequence_of("header:sequence"))


def test_partition_that_is_removed_during_the_read_is_not_waited_for(
    anabranch_cluster: RunningCluster,
) -> None:
    """librdkafka asks for it again and again, and reports nothing."""
    cluster = anabranch_cluster
    cluster.admin.create_topics([NewTopic(name="shrinking", partitions=2, replication_factor=1)])
    with ThreadPoolExecutor() as threads:
        with cluster.faults(api="Fetch", hold=True) as rule:
            reading = threads.submit(read_topic, cluster.bootstrap_servers, "shrinking", sequence_of("header:sequence"))
            rule.wait_hit()
            cluster.admin.create_partitions("shrinking", 1, allow_shrink=True)
            while len(cluster.admin.describe_topics(["shrinking"])["shrinking"].partitions) > 1:
                Event().wait(0.05)
        assert reading.result() == ([], {0: range(0)})


def test_records_that_are_deleted_during_the_read_are_skipped(anabranch_cluster: RunningCluster) -> None:
    cluster, head = anabranch_cluster, TopicPartition("shortened", 0)
    cluster.admin.create_topics([NewTopic(name=head.topic, partitions=1, replication_factor=1)])
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(5):
        producer.produce(head.topic, key=None if number % 2 else b"", value=b"/%d" % number)
    producer.flush()
    with ThreadPoolExecutor() as threads:
        with cluster.faults(api="Fetch", hold=True) as rule:
            reading = threads.submit(read_topic, cluster.bootstrap_servers, head.topic, sequence_of(r"value:/(\d+)$"))
            rule.wait_hit()
            cluster.admin.delete_records({head: 3})
        records, ranges = reading.result()
    assert [(one.offset, one.key, one.sequence) for one in records] == [(3, None, 3), (4, b"", 4)]
    assert ranges == {0: range(3, 5)}
