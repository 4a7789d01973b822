"""The cost of record validation for a broker: processor time per record, and its share of a Produce.

Whole requests of one batch go through a node without a socket, as in `request_path`, alternately with and without
validation; the node without it is the peer. For comparison: the walk alone, over uncompressed records, and the
checksum, which is computed in any case.

    python -m benchmarks.inspection [--requests 700]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final
from unittest.mock import patch

from anabranch.broker.handlers import produce
from anabranch.broker.storage import validation
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.records.batch import HEADER_BYTES, read_header
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.compression import decompress
from anabranch.protocol.records.crc32c import crc32c
from anabranch.protocol.records.walk import walk
from benchmarks.report import Figure, summary, table, times, working
from benchmarks.request_path import ROUNDS, TOPIC, each_us, opened

REQUESTS: Final = 700
BATCH_BYTES: Final = 16384
"""A stock producer's batch size, before compression."""
SIZES: Final = (100, 1024)
CODECS: Final = ("none", "lz4", "zstd")
WALK_US_AIM: Final = 1.0


def a_batch(value_bytes: int, compression: str) -> bytes:
    """A batch as large as a stock producer's; half of each value compresses well."""
    rng = random.Random(1)
    builder = BatchBuilder(compression, limit_bytes=BATCH_BYTES)
    count = 0
    while builder.append(
        b"key-%04d" % rng.randrange(10_000),
        rng.randbytes(value_bytes // 2) + bytes(value_bytes - value_bytes // 2),
        (),
        1_700_000_000_000 + count // 4,
    ):
        count += 1
    return builder.build()


@contextlib.contextmanager
def believing() -> Iterator[None]:
    """Disable record validation."""

    def believed(_: Any, header: Any, *__: Any) -> int:
        latest: int = header.max_timestamp
        return latest

    with patch.object(validation, "_check_records", believed), patch.object(produce, "needs_yielding", lambda _: False):
        yield


async def requests_us(requests: int) -> dict[tuple[int, str], tuple[float, float]]:
    """Microseconds per request, with validation and without, by value size and codec."""
    found: dict[tuple[int, str], tuple[float, float]] = {}
    kinds = [(size, codec) for size in SIZES for codec in CODECS]
    messages = [
        ProduceRequest(
            acks=1,
            timeout_ms=30000,
            topic_data=[
                TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=a_batch(*kind))])
            ],
        )
        for kind in kinds
    ]
    async with Cluster(1, seed=random.randrange(1 << 30)) as cluster:
        paths = await opened(cluster.nodes[1], cluster.bootstrap_servers, messages)
        for kind, path in zip(kinds, paths, strict=True):
            looked = believed = float("inf")
            for _ in range(ROUNDS):
                looked = min(looked, await path.whole_us(requests // ROUNDS))
                with believing():
                    believed = min(believed, await path.whole_us(requests // ROUNDS))
            found[kind] = looked, believed
        for path in paths:
            await path.connection.stop()
    return found


def measure(requests: int = REQUESTS) -> list[Figure]:
    with working("inspection"), asyncio.Runner() as runner:
        found = runner.run(requests_us(requests))
    rows: list[Sequence[str]] = []
    figures = []
    for (size, codec), (looked_us, believed_us) in found.items():
        batch = a_batch(size, codec)
        header = read_header(batch)
        count = header.record_count
        content = decompress(header.codec, batch[HEADER_BYTES:])
        walk_us = min(each_us(lambda one=content, n=count: walk(one, n), 50) for _ in range(ROUNDS))  # type: ignore[misc]
        crc_us = min(each_us(lambda one=batch: crc32c(one), 50) for _ in range(ROUNDS))  # type: ignore[misc]
        rows.append(
            (
                f"{count} of {size} B, {codec}",
                *(f"{one:.0f}" for one in (looked_us, believed_us)),
                f"{(looked_us - believed_us) / count:.2f}",
                f"{walk_us / count:.2f}",
                f"{crc_us / count:.2f}",
                times(looked_us, believed_us),
            )
        )
        if (size, codec) == (SIZES[0], "none"):
            figures.append(
                Figure(
                    f"a look at a record of {size} B",
                    f"< {WALK_US_AIM:.1f} us",
                    f"{walk_us / count:.2f} us",
                    f"a believing broker: {believed_us:.0f} us a Produce, {looked_us:.0f} with the look",
                    walk_us / count < WALK_US_AIM,
                )
            )
    table(
        f"inspection: microseconds of a Produce of one batch of {BATCH_BYTES // 1024} KiB, best of {ROUNDS} rounds",
        *("", "looking", "believing", "look a record", "walk a record", "checksum a record", "looking / believing"),
        rows=rows,
        note="without a socket; look: decompression and walk",
    )
    return figures


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=REQUESTS, help=f"of each kind (default: {REQUESTS})")
    summary(measure(parser.parse_args(arguments).requests))
    return 0


if __name__ == "__main__":
    sys.exit(main())
