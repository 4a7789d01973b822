"""librdkafka reads ranges from real brokers: compression, gaps, retention, lost leaders and partitions."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Consumer

from anabranch.cluster.link_proxy import Link, LinkFault, Proxy
from anabranch.protocol.records.control import build_end_transaction
from anabranch.spark_jobs import range_reader
from anabranch.spark_jobs.range_reader import LostRecords, RangeReader
from anabranch.spark_jobs.ranges import OffsetRange
from tests.spark_jobs.happenings import begin_transaction, expire
from tests.spark_jobs.live import LiveCluster


def numbered(count: int, *, partition: int = 0) -> list[tuple[int, bytes, bytes]]:
    return [(partition, b"k%d" % number, b"v%d" % number) for number in range(count)]


def offsets(reader: RangeReader, topic: str, start: int, end: int, *, strict: bool = True) -> list[int | None]:
    wanted = OffsetRange(topic, 0, start, end)
    return [record.offset() for batch in reader.read(wanted, fail_on_data_loss=strict) for record in batch]


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_of_any_range_are_complete(live: LiveCluster, compression: str | None) -> None:
    topic = live.create(f"range-{compression}", 1)
    live.produce(topic, numbered(300), headers=[("h", b"1"), ("none", None)], compression=compression)
    with RangeReader(live.servers, {}) as reader:
        [records] = list(reader.read(OffsetRange(topic, 0, 0, 300)))
        assert [(record.offset(), record.key(), record.value()) for record in records] == [
            (number, key, value) for number, (_, key, value) in enumerate(numbered(300))
        ]
        assert all(record.headers() == [("h", b"1"), ("none", None)] for record in records)
        assert offsets(reader, topic, 17, 205) == list(range(17, 205))
        assert offsets(reader, topic, 299, 300) == [299]
        assert offsets(reader, topic, 5, 5) == []


def test_markers_are_skipped(live: LiveCluster) -> None:
    topic = live.create("range-control", 1)
    live.produce(topic, numbered(3))
    marker = build_end_transaction(
        commit=True, producer_id=900, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1_700_000_000_000
    )
    replicas = live.cluster.nodes[live.leader(topic, 0)].services.replicas

    async def write_marker() -> None:
        replicas.append_local(replicas.leader_of(topic, 0), marker, acks=1, generation=None, origin="coordinator")

    live.run(write_marker())
    with RangeReader(live.servers, {}) as reader:
        assert offsets(reader, topic, 0, 4) == [0, 1, 2], "the marker is the last of the log"
        live.produce(topic, numbered(2))
        assert offsets(reader, topic, 0, 6) == [0, 1, 2, 4, 5]
        assert offsets(reader, topic, 3, 4) == []
        assert offsets(reader, topic, 2, 4) == [2]


def test_aborted_records_are_skipped_under_read_committed(live: LiveCluster) -> None:
    topic = live.create("range-aborted", 1)
    live.produce(topic, numbered(1))
    begin_transaction(live, topic, [(0, b"k", b"gone"), (0, b"k", b"gone")])()
    live.produce(topic, numbered(1))
    with RangeReader(live.servers, {}) as reader:
        assert offsets(reader, topic, 0, 5) == [0, 1, 2, 4]
    with RangeReader(live.servers, {"isolation.level": "read_committed"}) as reader:
        assert offsets(reader, topic, 0, 5) == [0, 4]
        assert offsets(reader, topic, 1, 4) == []


def test_expired_records_are_an_error_or_skipped(live: LiveCluster) -> None:
    topic = live.create("range-retention", 1)
    live.produce(topic, numbered(20))
    expire(live, topic, 0, 12)
    with RangeReader(live.servers, {}) as reader:
        with pytest.raises(LostRecords, match="range-retention-0 begins at offset 12 now; 0 to 11 were not read"):
            offsets(reader, topic, 0, 20)
        with pytest.raises(LostRecords, match="3 to 9 were not read"):
            offsets(reader, topic, 3, 10)
        assert offsets(reader, topic, 0, 20, strict=False) == list(range(12, 20))
        assert offsets(reader, topic, 3, 10, strict=False) == []
        assert offsets(reader, topic, 12, 20) == list(range(12, 20))


def test_deleted_partition_is_an_error_or_skipped(live: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "SILENCE_S", 0.2)
    monkeypatch.setattr(range_reader, "GONE_TIMEOUT_S", 0.3)
    topic = live.create("range-gone", 1)
    with RangeReader(live.servers, {}) as reader:
        wanted = OffsetRange(topic, 3, 0, 10)
        assert list(reader.read(wanted, fail_on_data_loss=False)) == []
        with pytest.raises(LostRecords, match="range-gone-3 was deleted, with offsets 0 to 9"):
            list(reader.read(wanted))


def test_unreached_end_offset_times_out(live: LiveCluster) -> None:
    topic = live.create("range-end", 1)
    live.produce(topic, numbered(2))
    with RangeReader(live.servers, {}, timeout_s=0.3) as reader:
        batches = reader.read(OffsetRange(topic, 0, 0, 5))
        assert len(next(batches)) > 0
        with pytest.raises(TimeoutError, match="range-end-0 has no records from offset 2 to 5"):
            list(batches)


def test_offset_beyond_the_log_is_an_error(live: LiveCluster) -> None:
    topic = live.create("range-beyond", 1)
    live.produce(topic, numbered(2))
    with (
        RangeReader(live.servers, {}) as reader,
        pytest.raises(LostRecords, match="range-beyond-0 ends at offset 2, and was to be read from 50 on"),
    ):
        offsets(reader, topic, 50, 60, strict=False)


class Silenced(LinkFault):
    """Nothing gets through on the connections that there are now; later ones are not concerned."""

    def __init__(self, proxy: Proxy) -> None:
        super().__init__("drop", "client", "1")
        self.links = set(proxy.links)

    def applies(self, link: Link) -> bool:
        return link in self.links


def test_stuck_consumer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read continues although librdkafka's connections are stuck, long before its timeouts. Its connections stop
    responding before the data is written.
    """
    monkeypatch.setattr(range_reader, "FRESH_START_S", 1.0)
    monkeypatch.setattr(range_reader, "LOOK_UP_S", 1.0)
    with LiveCluster(1) as live:
        proxy = Proxy()
        port = live.run(proxy.listen("client", "1", ("127.0.0.1", live.cluster.nodes[1].port)))
        live.run(live.cluster.crash_broker(1))
        live.run(live.cluster.start_broker(1, {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}))
        topic = live.create("silenced", 1)
        live.produce(topic, numbered(10))

        async def silence() -> LinkFault:
            return proxy.begin(Silenced(proxy))

        with RangeReader(live.servers, {}, timeout_s=30) as reader:
            batches = reader.read(OffsetRange(topic, 0, 0, 20))
            found = [record.offset() for record in next(batches)]
            live.run(silence())
            live.produce(topic, numbered(10))
            found += [record.offset() for batch in batches for record in batch]
        live.run(proxy.close())
        assert found == list(range(20))


def test_consumer_that_blocks_in_close_is_abandoned(live: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for librdkafka's hang: a consumer that blocks in `close`."""
    monkeypatch.setattr(range_reader, "CLOSE_TIMEOUT_S", 0.2)
    released = threading.Event()

    class Endless(Consumer):
        def close(self) -> None:
            released.wait()
            super().close()

    monkeypatch.setattr(range_reader, "Consumer", Endless)
    topic = live.create("range-endless", 1)
    live.produce(topic, numbered(2))
    with (
        pytest.raises(TimeoutError, match="range-endless-0 has no records from offset 2"),
        RangeReader(live.servers, {}, timeout_s=0.5) as reader,
    ):
        offsets(reader, topic, 0, 5)
    released.set()
    for thread in threading.enumerate():
        if thread.name == range_reader.END:
            thread.join()


@pytest.mark.parametrize("orderly", [True, False], ids=["stopped", "crashed"])
def test_read_continues_with_next_leader(orderly: bool) -> None:
    with LiveCluster(3) as live:
        topic = live.create("moving", 1, replicas=3)
        live.produce(topic, numbered(100))
        victim = live.leader(topic, 0)
        with RangeReader(live.servers, {}) as reader:
            # What there is comes at once; the rest is written after the leader went, and waited for.
            batches = reader.read(OffsetRange(topic, 0, 0, 120))
            found = [record.offset() for record in next(batches)]
            live.run(live.cluster.stop_broker(victim) if orderly else live.cluster.crash_broker(victim))
            writer = threading.Thread(target=live.produce, args=(topic, numbered(20)))
            writer.start()
            found += [record.offset() for batch in batches for record in batch]
            writer.join()
        assert found == list(range(120))
        assert live.leader(topic, 0) != victim
