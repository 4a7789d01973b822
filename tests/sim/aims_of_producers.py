"""Aims at producers: errors of an unhealthy cluster must not persist; see `aims`."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from anabranch import Producer
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.sim.aims import aim, calm
from tests.sim.clients import CLIENT_FAILURES, note_outcome
from tests.sim.history import Send

RECORDS: Final = 6
BACK_S: Final = 20.0
"""So long after all brokers are back everything is stored that was sent meanwhile."""


async def _write(schedule: Any, topic: str, told: list[ErrorCode]) -> None:
    writer = schedule.caretaker
    history = writer.history
    producer = Producer(
        schedule.cluster.bootstrap,
        client_id=writer.identity,
        request_timeout_ms=1000,
        delivery_timeout_ms=60_000,
        max_block_ms=60_000,
        rng=writer.chance(f"producer-{topic}"),
    )
    while True:
        try:
            await producer.start()
            break
        except CLIENT_FAILURES as error:
            writer.tell(f"cannot write yet: {error}")
    producer._network.on_metadata(lambda metadata: told.extend(metadata.errors.values()))
    for number in range(RECORDS):
        send = Send(history.tick(), f"writer of {topic}", f"k{number % 2}", number // 2, f"{topic}/{number}")
        try:
            receipt = await producer.send(topic, send.value.encode(), send.key.encode(), timestamp_ms=writer.clock_ms())
        except KafkaError as error:
            history.failures.append(f"a producer takes no record for {topic}, which is only not usable yet: {error}")
            break
        history.sends.append(send)
        receipt.add_done_callback(lambda done, send=send: note_outcome(writer, send, done))
        await asyncio.sleep(0.05)
    await producer.stop()


@aim(
    "a topic is first written to while brokers are away",
    {"copiers": 0, "readers": 1, "counts": [2], "keys": 3, "fault_s": 6.0, "pace_s": 0.3, "brokers": 3, "spares": 1},
    settings={"auto_create_topics_enable": True},
)
async def first_written_to(schedule: Any) -> bool:
    """Too few brokers for its replicas, or the only responding one has just started. No client may cache that."""
    cluster, rng = schedule.cluster, schedule.rng
    if not calm(cluster):
        return False
    topic, told = f"new-{len(list(cluster.topics()))}", []
    cluster.history.unread.add(topic)
    away = rng.sample(cluster.brokers, rng.choice((1, 2, 3)))
    for one in away:
        cluster.crash(one.node_id)
        cluster.expire_session(one.node_id)
    if len(away) == len(cluster.brokers):
        cluster.boot(away.pop().node_id)
    await asyncio.sleep(rng.random())
    writing = cluster.loop.spawn(schedule.caretaker.process, _write(schedule, topic, told), "first writer")
    deadline = cluster.now() + 3
    while ErrorCode.INVALID_REPLICATION_FACTOR not in told and not writing.done() and cluster.now() < deadline:
        await asyncio.sleep(0.01)
    await asyncio.sleep(rng.random() * 2)
    for one in away:
        cluster.boot(one.node_id)
        await asyncio.sleep(rng.random())
    deadline = cluster.now() + BACK_S
    while not writing.done() and cluster.now() < deadline:
        await asyncio.sleep(0.05)
    if not writing.done():
        cluster.history.failures.append(f"nothing can be written to {topic} {BACK_S:g} s after all brokers are back")
    return ErrorCode.INVALID_REPLICATION_FACTOR in told
