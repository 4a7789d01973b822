"""The audited load of the walk: a producer and a group, which record every delivery. Reads commands from stdin.

acked N    answers when N more records than when it was asked are acknowledged
end        stops writing, answers when the group has all acknowledged records: how many it has, and how many there are
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from anabranch import Consumer, Producer, RecordMetadata
from anabranch.broker.config.properties_file import properties_in
from anabranch.clients.security_config import security_of
from tests.hosts.client import until

TOPIC = "orders"
KEYS = 50
PAUSE_S = 0.01
POLL_MS = 200


class AuditedLoad:
    """One producer without end, and a group of one consumer."""

    def __init__(self, servers: str, properties: Path) -> None:
        self._servers = servers
        self._security = security_of(properties_in(properties.read_text()))
        self._is_ending = self._is_written = False
        self._read: set[bytes | None] = set()
        self.acked = 0

    @property
    def delivered(self) -> int:
        """How many records the group has read; one that it reads again counts once."""
        return len(self._read)

    async def write(self) -> None:
        """Send to one key after the other until told to stop."""
        number = 0
        async with Producer(
            self._servers, audit=True, security=self._security, request_timeout_ms=2000, metadata_max_age_ms=2000
        ) as producer:
            while not self._is_ending:
                receipt = await producer.send(TOPIC, b"%d" % number, b"k%d" % (number % KEYS))
                receipt.add_done_callback(self._on_acked)
                number += 1
                await asyncio.sleep(PAUSE_S)
        self._is_written = True

    def _on_acked(self, receipt: asyncio.Future[RecordMetadata]) -> None:
        receipt.result()  # no fault here may lead to a record that is given up
        self.acked += 1

    async def read(self) -> None:
        """Read until told to stop, and until all is read."""
        async with Consumer(
            TOPIC,
            bootstrap_servers=self._servers,
            group_id="billing",
            auto_offset_reset="earliest",
            audit=f"{TOPIC}-audit",
            request_timeout_ms=2000,
            metadata_max_age_ms=2000,
            security=self._security,
        ) as consumer:
            while not (self._is_written and self.delivered >= self.acked):
                taken = await consumer.getmany(timeout_ms=POLL_MS)
                self._read.update(record.value for records in taken.values() for record in records)
            await consumer.commit()

    def end(self) -> None:
        """Stop writing."""
        self._is_ending = True

    async def wait_acked(self, more: int) -> None:
        """Wait until so many more records are acknowledged."""
        goal = self.acked + more

        async def is_acked() -> bool:
            return self.acked >= goal

        await until(is_acked)


async def main(servers: str, properties: Path) -> None:
    """Serve the lines of stdin."""
    load = AuditedLoad(servers, properties)
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        writing, _ = group.create_task(load.write()), group.create_task(load.read())
        while (line := await loop.run_in_executor(None, sys.stdin.readline)) != "end\n":
            await load.wait_acked(int(line.split()[1]))
            print(json.dumps({"acked": load.acked, "delivered": load.delivered}), flush=True)
        load.end()
        await writing
    print(json.dumps({"acked": load.acked, "delivered": load.delivered}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
