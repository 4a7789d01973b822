"""Sends numbered records of some keys until a file exists, and writes down each record that is stored.

    python examples/chaos/send.py 127.0.0.1:9092 orders a sent.jsonl enough

The lines are those of `anabranch audit --sent`. Several senders may append to one file; the third word tells their keys
apart.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

from anabranch import Producer

KEYS: Final = 40
PAUSE_S: Final = 0.02
DELIVERY_MS: Final = 600_000
"""Longer than any fault: a record that is given up would be a gap in its key."""


async def send(servers: str, topic: str, name: str, path: str, enough: str) -> None:
    """Send until the file `enough` exists; return when all records are stored."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    sequences: Counter[str] = Counter()
    number = 0

    def write_down(key: str, sequence: int, stored: asyncio.Future[Any]) -> None:
        place = stored.result()
        row = {"key": key, "sequence": sequence, "partition": place.partition, "offset": place.offset}
        os.write(file, json.dumps(row).encode() + b"\n")

    async with Producer(servers, delivery_timeout_ms=DELIVERY_MS) as producer:
        while not Path(enough).exists():  # noqa: ASYNC240  # a shell cannot set an event here
            key = f"{name}-{number % KEYS}"
            sequence = sequences[key]
            sequences[key] += 1
            stored = await producer.send(topic, str(sequence).encode(), key.encode())
            stored.add_done_callback(lambda one, key=key, sequence=sequence: write_down(key, sequence, one))
            number += 1
            await asyncio.sleep(PAUSE_S)
        await producer.flush()


if __name__ == "__main__":
    asyncio.run(send(*sys.argv[1:]))
