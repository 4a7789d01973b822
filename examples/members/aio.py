"""aiokafka as a group member that logs each delivered record, for `anabranch.chaos run --member`.

    python -m anabranch.chaos run --duration 60 --member "aiokafka=python examples/members/aio.py"

The last four words are added by the run. The sequence of a record is what its value says behind the slash.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from lines import Lines


async def receive(servers: str, topic: str, group: str, path: str) -> None:
    """Receive until told to end."""
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    lines = Lines(path)
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers.split(","),
        group_id=group,
        client_id=f"{group}-{os.getpid()}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
        metadata_max_age_ms=1000,
        request_timeout_ms=10000,
    )
    async with consumer:
        while not ending.is_set():
            for partition, records in (await consumer.getmany(timeout_ms=200)).items():
                lines.write((one.key, one.value, one.partition, one.offset) for one in records)
                with contextlib.suppress(CommitFailedError, IllegalStateError, KafkaError):  # then it comes again
                    await consumer.commit({partition: records[-1].offset + 1})


if __name__ == "__main__":
    asyncio.run(receive(*sys.argv[1:]))
