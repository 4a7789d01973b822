"""The producer process of the demonstration: `python -m anabranch.demo.replay`.

Sends the flights at a steady rate, and prints as JSON lines how many were sent and acknowledged. The rate is kept over
time, so the process catches up after a stall (a resize, a leader's failure).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections import Counter
from typing import Any

from anabranch.clients.clock import wall_clock_ms
from anabranch.clients.producer.producer import Producer
from anabranch.clients.producer.producer_record import RecordMetadata
from anabranch.demo import flights

SLICE_S = 0.02
REPORT_EVERY_S = 0.25
METADATA_MAX_AGE_MS = 1000
"""How soon a stock producer notices new partitions: Kafka's default of 5 minutes is longer than the control run."""


class Replay:
    """One run through the flights."""

    def __init__(self, producer: Producer, topic: str, rows: list[flights.Flight], *, rate: float) -> None:
        self._producer = producer
        self._topic = topic
        self._rows = rows
        self._rate = rate
        self._acked: Counter[int] = Counter()
        self._failed = 0
        self._sent = 0

    async def run(self) -> dict[str, Any]:
        """Send everything, wait until all records are acknowledged, and return the totals."""
        loop = asyncio.get_running_loop()
        begin, reported = loop.time(), 0.0
        while self._sent < len(self._rows):
            due = min(len(self._rows), int((loop.time() - begin) * self._rate) + 1)
            for row in self._rows[self._sent : due]:
                future = await self._producer.send(self._topic, value=row.line, key=row.tail_number)
                future.add_done_callback(self._settle)
                self._sent += 1
            if loop.time() - reported >= REPORT_EVERY_S:
                reported = loop.time()
                write_event("progress", **self._totals())
            await asyncio.sleep(SLICE_S)
        await self._producer.flush()
        return self._totals()

    def _settle(self, future: asyncio.Future[RecordMetadata]) -> None:
        if future.cancelled() or future.exception() is not None:
            self._failed += 1
        else:
            self._acked[future.result().partition] += 1

    def _totals(self) -> dict[str, Any]:
        return {
            "sent": self._sent,
            "acked": sum(self._acked.values()),
            "failed": self._failed,
            "by_partition": {str(index): count for index, count in sorted(self._acked.items())},
        }


def write_event(event: str, **facts: Any) -> None:
    """Print a JSON line for the parent process."""
    sys.stdout.write(json.dumps({"event": event, "t": wall_clock_ms(), **facts}) + "\n")
    sys.stdout.flush()


async def replay(options: argparse.Namespace) -> int:
    """Connect, send, report."""
    rows = flights.load(options.limit)
    async with Producer(
        bootstrap_servers=options.bootstrap_servers,
        client_id="flights",
        acks="all",
        enable_idempotence=True,
        linger_ms=20,
        compression_type="lz4",
        partitioner=options.partitioner,
        metadata_max_age_ms=METADATA_MAX_AGE_MS,
        audit=True,
    ) as producer:
        write_event("ready", rows=len(rows))
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        totals = await Replay(producer, options.topic, rows, rate=options.rate).run()
    write_event("done", **totals)
    return 0 if totals["failed"] == 0 and totals["acked"] == len(rows) else 1


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="anabranch.demo.replay", description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rate", type=float, default=3000.0, help="flights per second")
    parser.add_argument("--limit", type=int, help="only the first so many flights")
    parser.add_argument("--partitioner", choices=("linear", "modulo"), default="linear")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    return asyncio.run(replay(options))


if __name__ == "__main__":
    sys.exit(main())
