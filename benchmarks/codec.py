"""Generated codecs compared with the construct reference, on Fetch and Produce.

Both do the same work on the same bytes in the same run; the figure is the ratio, which must be 10 or more.

    python -m benchmarks.codec [--partitions 50]
"""

from __future__ import annotations

import argparse
import sys
import time
import timeit
from collections.abc import Callable
from typing import Any, Final

from anabranch.protocol import codec, layout
from anabranch.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from anabranch.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from benchmarks.report import Figure, summary, table, times, working

RATIO_MIN: Final = 10.0
PARTITIONS: Final = 50
RECORDS: Final = bytes(1024)
VERSIONS: Final = {"Fetch": (11, 15), "Produce": (7, 9)}


def messages(partitions: int) -> list[Any]:
    """One large message of each kind: a topic with `partitions` partitions and a kilobyte of records in each."""
    every = range(partitions)
    rows = [FetchPartition(partition=p, fetch_offset=1000 + p, partition_max_bytes=1 << 20) for p in every]
    fetched = [PartitionData(partition_index=p, error_code=0, high_watermark=9, records=RECORDS) for p in every]
    produced = [PartitionProduceData(index=p, records=RECORDS) for p in every]
    stored = [PartitionProduceResponse(index=p, error_code=0, base_offset=1000 + p) for p in every]
    return [
        FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="flights", partitions=rows)]),
        FetchResponse(responses=[FetchableTopicResponse(topic="flights", partitions=fetched)]),
        ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[TopicProduceData(name="f", partition_data=produced)]),
        ProduceResponse(responses=[TopicProduceResponse(name="flights", partition_responses=stored)]),
    ]


def microseconds(call: Callable[[], object]) -> float:
    """Microseconds of CPU time per call: the best of five runs of about 20 ms each."""
    timer = timeit.Timer(call, timer=time.process_time)
    count = max(1, int(0.02 / max(timer.timeit(1), timer.timeit(1), 1e-6)))
    return min(timer.repeat(5, count)) / count * 1e6


def measure(partitions: int = PARTITIONS) -> list[Figure]:
    rows, worst = [], float("inf")
    with working("codec") as status:
        for message in messages(partitions):
            name = type(message).__name__
            status.update(f"codec: {name}")
            for version in VERSIONS[name.removesuffix("Request").removesuffix("Response")]:
                for what, slow, fast in _pair(message, version):
                    slow_us, fast_us = microseconds(slow), microseconds(fast)
                    worst = min(worst, slow_us / fast_us)
                    rows.append(
                        (f"{what} {name} v{version}", f"{fast_us:.1f}", f"{slow_us:.1f}", times(slow_us, fast_us))
                    )
    table(
        f"codec: microseconds a message, {partitions} partitions in each",
        *("", "generated", "construct", "construct / generated"),
        rows=rows,
    )
    return [
        Figure(
            "generated codec on Fetch and Produce, against construct",
            f">= {RATIO_MIN:.0f}x faster",
            f"{worst:.0f}x at least",
            "construct reference, same bytes",
            worst >= RATIO_MIN,
        )
    ]


def main(arguments: list[str] | None = None) -> int:
    """Print the table; fail if a ratio is too small."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--partitions", type=int, default=PARTITIONS, help=f"partitions in each message (default: {PARTITIONS})"
    )
    figures = measure(parser.parse_args(arguments).partitions)
    summary(figures)
    return 0 if all(one.met for one in figures) else 1


def _pair(message: Any, version: int) -> list[tuple[str, Callable[[], object], Callable[[], object]]]:
    cls, wire = type(message), codec.encode(message, version)
    assert wire == layout.encode(message, version)
    return [
        ("decode", lambda: layout.decode(cls, version, wire), lambda: codec.decode(cls, version, wire)),
        ("encode", lambda: layout.encode(message, version), lambda: codec.encode(message, version)),
    ]


if __name__ == "__main__":
    sys.exit(main())
