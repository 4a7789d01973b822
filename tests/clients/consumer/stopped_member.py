"""A member in its own process that stops itself (SIGSTOP) with fetched records: see `test_replaced_members`.

Prints how many records it handed out after somebody let it go on, and before it knew that it had been replaced.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from anabranch import Consumer
from tests.clients.consumer.groups import GROUP, TOPIC


async def main(bootstrap_servers: str, strategy: str, session_timeout_ms: int) -> int:
    async with Consumer(
        TOPIC,
        bootstrap_servers=bootstrap_servers,
        group_id=GROUP,
        auto_offset_reset="earliest",
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=100,
        partition_assignment_strategy=strategy,
    ) as consumer:
        while not consumer.assignment() or not all(one.buffered for one in consumer._core.assignment):
            await consumer.getmany(timeout_ms=200, max_records=1)
        generation, late = consumer.generation, 0
        os.kill(os.getpid(), signal.SIGSTOP)
        while consumer.generation == generation:
            taken = await consumer.getmany(timeout_ms=200, max_records=5)
            if consumer.generation == generation:
                late += sum(map(len, taken.values()))
    return late


if __name__ == "__main__":
    print(asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
