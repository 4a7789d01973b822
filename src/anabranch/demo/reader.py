"""A consumer process of the demonstration: `python -m anabranch.demo.reader`.

One member of the group that reads the flights; it writes each delivery to the audit topic. Its output is JSON lines:
records read per partition, closed gates and their reasons, crossed boundaries and opened gates. It runs until SIGTERM,
or until standard input closes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections import Counter
from collections.abc import Collection
from typing import Any

from anabranch.clients.clock import wall_clock_ms
from anabranch.clients.consumer.consumer import Consumer
from anabranch.clients.consumer.listener import PartitionKeyRebalanceListener
from anabranch.protocol.topic_partition import TopicPartition
from anabranch.runtime.runner import StopSignal

REPORT_EVERY_S = 0.25
POLL_MS = 100
METADATA_MAX_AGE_MS = 1000


def write_event(event: str, **facts: Any) -> None:
    """Print a JSON line for the parent process."""
    sys.stdout.write(json.dumps({"event": event, "t": wall_clock_ms(), **facts}) + "\n")
    sys.stdout.flush()


class Timeline(PartitionKeyRebalanceListener):
    """Reports when keys leave and arrive."""

    def on_partition_key_maybe_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Report that keys of these partitions may move away from now on."""
        write_event("revoked", partitions=[one.partition for one in partitions])

    def on_partition_key_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Report that keys may arrive in these partitions from now on."""
        write_event("assigned", partitions=[one.partition for one in partitions])


class Reader:
    """Reads, counts and reports records."""

    def __init__(self, consumer: Consumer, *, records_per_s: float) -> None:
        self._consumer = consumer
        self._records_per_s = records_per_s
        self._delivered: Counter[int] = Counter()
        """Partition -> the offset that it is read to: the number of its records, as a new topic has no gaps."""
        self._openings_reported = 0

    async def run(self) -> None:
        """Read until cancelled. `records_per_s` limits the rate of this application; 0: no limit."""
        loop = asyncio.get_running_loop()
        reported = 0.0
        while True:
            batch = await self._consumer.getmany(timeout_ms=POLL_MS)
            read = 0
            for partition, records in batch.items():
                self._delivered[partition.partition] = max(records[-1].offset + 1, self._delivered[partition.partition])
                read += len(records)
            if self._records_per_s and read:
                await asyncio.sleep(read / self._records_per_s)
            if loop.time() - reported >= REPORT_EVERY_S:
                reported = loop.time()
                self.report()

    def report(self) -> None:
        """Report the current counts."""
        offset_ms = wall_clock_ms() - asyncio.get_running_loop().time() * 1000
        openings = self._consumer.gate_openings()
        for opening in openings[self._openings_reported :]:
            write_event(
                "opened",
                key_epoch=str(opening.key_epoch),
                partition=opening.key_epoch.partition,
                closed_ms=round(offset_ms + opening.closed_at_s * 1000),
                opened_ms=round(offset_ms + opening.opened_at_s * 1000),
            )
        self._openings_reported = len(openings)
        write_event(
            "progress",
            delivered={str(index): count for index, count in sorted(self._delivered.items())},
            assigned=sorted(one.partition for one in self._consumer.assignment()),
            gates=[str(gate) for gate in self._consumer.gates()],
        )


async def read(options: argparse.Namespace) -> int:
    """Join the group and read until stopped."""
    async with Consumer(
        options.topic,
        bootstrap_servers=options.bootstrap_servers,
        client_id=options.name,
        group_id=options.group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=1000,
        session_timeout_ms=6000,
        heartbeat_interval_ms=300,
        rebalance_timeout_ms=20000,
        fetch_max_wait_ms=100,
        metadata_max_age_ms=METADATA_MAX_AGE_MS,
        ordered_delivery=not options.unordered,
        listener=Timeline(),
        audit=options.audit,
    ) as consumer:
        reader = Reader(consumer, records_per_s=options.records_per_s)
        stop = StopSignal()
        write_event("ready")
        await stop.wait(reader.run())
        reader.report()
    write_event("done")
    return 0


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="anabranch.demo.reader", description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--audit", required=True, metavar="TOPIC")
    parser.add_argument("--unordered", action="store_true", help="no gates, as Kafka's consumers have none")
    parser.add_argument("--records-per-s", type=float, default=0.0, help="how fast the application works")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    return asyncio.run(read(options))


if __name__ == "__main__":
    sys.exit(main())
