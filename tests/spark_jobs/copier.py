"""The audited exactly-once copier of docs/clients.md as a process that dies after its commits.

python -m tests.spark_jobs.copier SERVERS FROM TO AUDIT COUNT
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from anabranch import Consumer, Producer


async def copy(servers: str, source: str, to: str, audit: str, wanted: str) -> None:
    """Copy so many records, and end without another word."""
    count = int(wanted)
    consumer = Consumer(
        source,
        bootstrap_servers=servers,
        group_id="copiers",
        group_instance_id="copier",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        audit=audit,
    )
    await consumer.start()
    async with Producer(servers, transactional_id="copier") as producer:
        while count:
            batches = await consumer.getmany(timeout_ms=1000, max_records=count)
            async with producer.transaction():
                for records in batches.values():
                    for record in records:
                        await producer.send(to, key=record.key, value=record.value)
                done = {partition: records[-1].offset + 1 for partition, records in batches.items()}
                await producer.send_offsets_to_transaction(done, consumer.group_metadata())
            count -= sum(map(len, batches.values()))
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(copy(*sys.argv[1:]))
