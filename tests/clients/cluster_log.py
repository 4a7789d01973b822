"""Dumps a topic of a running cluster, and checks the order of its records.

Reads with plain Fetch requests, below any consumer: what is judged is what leaders store. The generation of a record
follows from the leader epoch of its batch and the partition's `gen_start`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from anabranch.clients.metadata import Partition, Topic
from anabranch.clients.network import Network
from anabranch.protocol import audit_mark
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.records.batch import iter_batches
from anabranch.protocol.records.record import iter_records
from anabranch.protocol.topic_partition import TopicPartition


@dataclass(frozen=True)
class Logged:
    """One record where it is stored."""

    key_epoch: KeyEpoch
    offset: int
    key: bytes
    sequence: int


async def dump(network: Network, topic: Topic) -> list[Logged]:
    """Every audited record of a topic, sealed partitions included."""
    records: list[Logged] = []
    for index, partition in sorted(topic.partitions.items()):
        position = 0
        while data := await _fetch(network, TopicPartition(topic.name, index), topic.topic_id, position):
            for start, header in iter_batches(data):
                for record in iter_records(data, start):
                    if record.offset >= position:
                        audit = next(value for name, value in record.headers if name == audit_mark.HEADER)
                        assert audit is not None
                        assert record.key is not None
                        key_epoch = KeyEpoch(index, generation_of(partition, header.partition_leader_epoch))
                        records.append(Logged(key_epoch, record.offset, record.key, audit_mark.decode(audit)[1]))
                position = header.next_offset
    return records


def generation_of(partition: Partition, leader_epoch: int) -> int:
    """The class generation in which the partition accepted batches of this leader epoch."""
    return max((generation for generation, epoch in partition.gen_start if epoch <= leader_epoch), default=-1)


async def _fetch(network: Network, partition: TopicPartition, topic_id: bytes, position: int) -> bytes:
    asked = FetchPartition(
        partition=partition.partition, fetch_offset=position, partition_max_bytes=1 << 20, last_fetched_epoch=-1
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchTopic(topic=partition.topic, topic_id=topic_id, partitions=[asked])],
    )
    response = await network.call(await network.leader_of(partition), request)
    (row,) = response.responses[0].partitions
    assert row.error_code == ErrorCode.NONE, ErrorCode(row.error_code)
    return bytes(row.records or b"")


def disorders(lineage: Lineage, records: list[Logged]) -> list[str]:
    """What is wrong with the order of keys (I3) and with their number (I6); nothing, if all is well."""
    found: list[str] = []
    by_key: dict[bytes, list[Logged]] = {}
    for record in records:
        by_key.setdefault(record.key, []).append(record)
    for key, of_key in by_key.items():
        of_key.sort(key=lambda record: record.sequence)
        sequences = [record.sequence for record in of_key]
        if sequences != list(range(len(sequences))):
            found.append(f"{key!r}: sequences {sequences[:20]}")
        for before, after in itertools.pairwise(of_key):
            if before.key_epoch == after.key_epoch:
                if before.offset >= after.offset:
                    found.append(f"{key!r}: {before} stands behind {after}")
            elif not _reaches(lineage, before.key_epoch, after.key_epoch):
                found.append(f"{key!r}: nothing makes {after} wait for {before}")
    return found


def _reaches(lineage: Lineage, first: KeyEpoch, second: KeyEpoch) -> bool:
    ends = [first]
    while ends:
        key_epoch = ends.pop()
        if key_epoch == second:
            return True
        following = lineage.next(key_epoch)
        ends += lineage.successors(key_epoch) + ((following,) if following else ())
    return False
