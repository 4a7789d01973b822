"""The client's host: writes keyed records continuously, and reads commands from stdin.

acked N    answers when N more records than when it was asked are acknowledged
grow N     splits the topic into N partitions
isr N      answers when every partition has so many in-sync replicas
end        stops writing, reads everything back and answers with what is wrong: a JSON list
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.clients.producer.producer_record import RecordMetadata

TOPIC = "orders"
KEYS = 50
PAUSE_S = 0.005
LOOK_S = 0.1


class Load:
    """One producer without end, and what it was acknowledged."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.sent: dict[str, int] = defaultdict(int)
        self.acked: dict[str, set[int]] = defaultdict(set)
        self.count = 0
        self.wrong: list[str] = []
        self.stopping = False

    async def write(self) -> None:
        """Send to one key after the other until told to stop."""
        async with Producer(self.servers, request_timeout_ms=2000, metadata_max_age_ms=2000) as producer:
            while not self.stopping:
                key = f"k{sum(self.sent.values()) % KEYS}"
                number = self.sent[key]
                self.sent[key] += 1
                receipt = await producer.send(TOPIC, b"%d" % number, key.encode())
                receipt.add_done_callback(lambda done, key=key, number=number: self.settled(key, number, done))  # type: ignore[misc]
                await asyncio.sleep(PAUSE_S)

    def settled(self, key: str, number: int, receipt: asyncio.Future[RecordMetadata]) -> None:
        """A record is acknowledged, or given up, which no fault here may lead to."""
        if error := receipt.exception():
            self.wrong.append(f"{key} {number} was given up: {error}")
            return
        self.acked[key].add(number)
        self.count += 1

    async def read_back(self) -> None:
        """Compare all that is in the topic with what was acknowledged."""
        last: dict[str, int] = defaultdict(lambda: -1)
        handed = 0
        async with Consumer(
            TOPIC, bootstrap_servers=self.servers, group_id="back", auto_offset_reset="earliest"
        ) as all_:
            while handed < self.count:
                taken = await all_.getmany(timeout_ms=10_000)
                if not taken:
                    break
                for records in taken.values():
                    for record in records:
                        handed += 1
                        key, number = (record.key or b"").decode(), int(record.value or b"")
                        if number != last[key] + 1:
                            self.wrong.append(f"{key}: {number} after {last[key]}")
                        last[key] = number
        self.wrong += [
            f"{key}: handed out up to {last[key]}, acknowledged {max(acked)}"
            for key, acked in self.acked.items()
            if last[key] < max(acked)
        ]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Look until something is so."""
    while not await condition():  # noqa: ASYNC110  # what is asked for is far away
        await asyncio.sleep(LOOK_S)


async def serve(load: Load, admin: Admin, word: str, number: int) -> None:
    """Execute a command line."""
    goal = load.count + number

    async def is_acknowledged() -> bool:
        return load.count >= goal

    async def is_in_sync() -> bool:
        topic = await admin.describe_topic(TOPIC)
        return all(len(one.isr) >= number for one in topic.partitions.values())

    match word:
        case "acked":
            await until(is_acknowledged)
        case "grow":
            await admin.create_partitions(TOPIC, number)
        case "isr":
            await until(is_in_sync)


async def main(servers: str) -> None:
    """Serve the lines of stdin."""
    load = Load(servers)
    loop = asyncio.get_running_loop()
    async with Admin(servers, request_timeout_ms=2000) as admin:
        configs = {"min.insync.replicas": "2"}
        await admin.create_topics([NewTopic(name=TOPIC, partitions=3, replication_factor=3, configs=configs)])
        writing = asyncio.create_task(load.write())
        while (line := await loop.run_in_executor(None, sys.stdin.readline)) != "end\n":
            word, number = line.split()
            await serve(load, admin, word, int(number))
            print(json.dumps(f"{word} {load.count}"), flush=True)
        load.stopping = True
        await writing
        await load.read_back()
        print(json.dumps(load.wrong), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
