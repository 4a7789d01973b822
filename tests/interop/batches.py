"""The batches of a topic's logs, for reports of failed tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from anabranch.clients.connection import Connection
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition
from anabranch.protocol.records.batch import Buffer, iter_batches
from anabranch.protocol.records.control import read_control
from anabranch.protocol.records.record import iter_records

FETCH_VERSION = 11
WHOLE_BYTES = 1 << 24


async def batches_of(servers: str, topic: str) -> list[str]:
    """A line for each batch of each partition, as its leader has it, and one for where the partition ends."""
    connection = await any_of(servers)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    told = await connection.call(request, version=9)
    await connection.close()
    where = {one.node_id: (one.host, one.port) for one in told.brokers}
    lines: list[str] = []
    for partition in sorted(told.topics[0].partitions, key=lambda one: one.partition_index):
        leader = await Connection.open(*where[partition.leader_id], client_id="batches")
        lines += [line async for line in _lines(leader, topic, partition)]
        await leader.close()
    return lines


async def any_of(servers: str) -> Connection:
    """A connection to the first broker that answers."""
    for server in servers.split(","):
        host, _, port = server.partition(":")
        try:
            return await Connection.open(host, int(port), client_id="batches")
        except OSError:
            continue
    raise ConnectionError(f"no broker of {servers} answers")


async def _lines(leader: Connection, topic: str, partition: MetadataResponsePartition) -> AsyncIterator[str]:
    index, offset = partition.partition_index, 0
    while True:
        row = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=WHOLE_BYTES)
        request = FetchRequest(
            replica_id=-1, max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[row])]
        )
        (found,) = (await leader.call(request, version=FETCH_VERSION)).responses[0].partitions
        if not found.records:
            end = f"high watermark {found.high_watermark}, stable {found.last_stable_offset}, error {found.error_code}"
            yield f"{topic}-{index}: led by {partition.leader_id}, in sync {partition.isr_nodes}, {end}"
            return
        for line, behind in described(found.records):
            yield f"{topic}-{index} {line}"
            offset = behind


def described(records: Buffer) -> Iterator[tuple[str, int]]:
    """Each batch in words, and the offset behind it."""
    for position, head in iter_batches(records):
        if head.is_control:
            what = read_control(records, position).type.name
        else:
            found = iter_records(records, position)
            what = " ".join(bytes(one.value or b"").decode(errors="replace") for one in found)
        whose = f"producer {head.producer_id} epoch {head.producer_epoch} sequence {head.base_sequence}"
        yield f"@{head.base_offset}: {whose}: {what}", head.next_offset
