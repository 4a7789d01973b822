"""A blocking writer into a topic, for the few records that an audit writes.

Records with one key go to one partition, in order. A write is repeated until all in-sync replicas acknowledge it, so a
record may be stored twice; readers detect that by the key, which identifies the violation.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Final

from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.spark_jobs.reader import TopicReader, _check
from anabranch.spark_jobs.source_options import OPEN, Client

BATCH_BYTES: Final = 512 * 1024
TIMEOUT_MS: Final = 10_000
ALL_IN_SYNC: Final = -1
COMPRESSION: Final = "lz4"


class TopicWriter:
    """Writes into one topic of one cluster."""

    def __init__(self, bootstrap_servers: str, topic: str, client: Client = OPEN, *, timeout_s: float = 60.0) -> None:
        """Create a writer; `client` has the security properties. Raises ValueError, OSError."""
        self._cluster = TopicReader(bootstrap_servers, client, timeout_s=timeout_s)
        self._topic = topic

    def write(self, records: Iterable[tuple[bytes, bytes]], timestamp_ms: int) -> None:
        """Store (key, value) pairs. Raises KafkaError or OSError on a timeout."""
        partitions = self._cluster.partitions(self._topic)
        waiting: dict[int, list[tuple[bytes, bytes]]] = {}
        for key, value in records:
            waiting.setdefault(partitions[murmur2(key) % len(partitions)], []).append((key, value))
        for index, its_records in sorted(waiting.items()):
            for batch in _batches(its_records, timestamp_ms):
                self._cluster._retry(functools.partial(self._produce, index, batch))

    def close(self) -> None:
        """Disconnect."""
        self._cluster.close()

    def _produce(self, index: int, batch: bytes) -> None:
        request = ProduceRequest(
            acks=ALL_IN_SYNC,
            timeout_ms=TIMEOUT_MS,
            topic_data=[
                TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(index=index, records=batch)])
            ],
        )
        leader, _ = self._cluster._leader(self._topic, index)
        response = self._cluster._link(leader).call(request)
        _check(response.responses[0].partition_responses[0].error_code, f"violations into {self._topic}-{index}")


def _batches(records: Iterable[tuple[bytes, bytes]], timestamp_ms: int) -> Iterator[bytes]:
    builder = BatchBuilder(COMPRESSION, limit_bytes=BATCH_BYTES)
    for key, value in records:
        if not builder.append(key, value, timestamp_ms=timestamp_ms):
            yield builder.build()
            builder = BatchBuilder(COMPRESSION, limit_bytes=BATCH_BYTES)
            builder.append(key, value, timestamp_ms=timestamp_ms)
    if builder.record_count:
        yield builder.build()
