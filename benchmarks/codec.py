"""Generated codecs beside the construct reference they are held to, on Fetch and Produce.

Both do the same work on the same bytes in the same run; the figure that counts is the ratio, which must be 10 or more.

    python -m benchmarks.codec [--partitions 50]
"""

from __future__ import annotations

import argparse
import sys
import timeit
from collections.abc import Callable
from typing import Any, Final

from protocol import codec, layout
from protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

RATIO_MIN: Final = 10.0
RECORDS: Final = bytes(1024)
VERSIONS: Final = {"Fetch": (11, 15), "Produce": (7, 9)}


def messages(partitions: int) -> list[Any]:
    """One busy message of each kind: a topic with that many partitions, a kilobyte of records in each."""
    every = range(partitions)
    asked = [FetchPartition(partition=p, fetch_offset=1000 + p, partition_max_bytes=1 << 20) for p in every]
    fetched = [PartitionData(partition_index=p, error_code=0, high_watermark=9, records=RECORDS) for p in every]
    produced = [PartitionProduceData(index=p, records=RECORDS) for p in every]
    stored = [PartitionProduceResponse(index=p, error_code=0, base_offset=1000 + p) for p in every]
    return [
        FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="flights", partitions=asked)]),
        FetchResponse(responses=[FetchableTopicResponse(topic="flights", partitions=fetched)]),
        ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[TopicProduceData(name="f", partition_data=produced)]),
        ProduceResponse(responses=[TopicProduceResponse(name="flights", partition_responses=stored)]),
    ]


def microseconds(call: Callable[[], object]) -> float:
    """The best of five runs of about 20 ms each, per call."""
    timer = timeit.Timer(call)
    count = max(1, int(0.02 / max(timer.timeit(1), timer.timeit(1), 1e-6)))
    return min(timer.repeat(5, count)) / count * 1e6


def main(arguments: list[str] | None = None) -> int:
    """Print the table; fail when a ratio is too small."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=50, help="partitions in each message (default: 50)")
    partitions: int = parser.parse_args(arguments).partitions
    print(f"codec: {partitions} partitions a message, microseconds a message")
    print(f"{'message':<18}{'version':>7}{'':4}{'what':<8}{'construct':>10}{'generated':>10}{'ratio':>8}")
    worst = float("inf")
    for message in messages(partitions):
        name = type(message).__name__
        for version in VERSIONS[name.removesuffix("Request").removesuffix("Response")]:
            for what, slow, fast in _pair(message, version):
                slow_us, fast_us = microseconds(slow), microseconds(fast)
                ratio = slow_us / fast_us
                worst = min(worst, ratio)
                print(f"{name:<18}{f'v{version}':>7}    {what:<8}{slow_us:10.1f}{fast_us:10.1f}{ratio:8.1f}")
    verdict = "ok" if worst >= RATIO_MIN else "TOO SLOW"
    print(f"smallest ratio {worst:.1f}, wanted {RATIO_MIN:.0f} or more: {verdict}")
    return 0 if worst >= RATIO_MIN else 1


def _pair(message: Any, version: int) -> list[tuple[str, Callable[[], object], Callable[[], object]]]:
    cls, wire = type(message), codec.encode(message, version)
    assert wire == layout.encode(message, version)
    return [
        ("decode", lambda: layout.decode(cls, version, wire), lambda: codec.decode(cls, version, wire)),
        ("encode", lambda: layout.encode(message, version), lambda: codec.encode(message, version)),
    ]


if __name__ == "__main__":
    sys.exit(main())
