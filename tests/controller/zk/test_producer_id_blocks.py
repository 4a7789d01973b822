"""Blocks of producer ids are contiguous, whoever allocates them."""

from __future__ import annotations

import asyncio

from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.memory import MemorySession, MemoryZooKeeper
from anabranch.controller.zk.producer_id_blocks import BLOCK_SIZE, claim_block


async def claimed(session: MemorySession, broker_id: int) -> znodes.ProducerIdBlock:
    return await claim_block(session, broker_id, session.multi)


async def opened() -> MemorySession:
    session = await MemoryZooKeeper().connect()
    await session.create("/latest_producer_id_block", b"")
    await session.delete("/latest_producer_id_block")
    return session


async def test_producer_id_blocks_start_at_0_and_are_consecutive() -> None:
    session = await opened()
    blocks = [await claimed(session, broker_id) for broker_id in (1, 2, 1)]
    assert [(one.broker_id, one.first) for one in blocks] == [(1, 0), (2, BLOCK_SIZE), (1, 2 * BLOCK_SIZE)]
    data, _ = await session.get(paths.LATEST_PRODUCER_ID_BLOCK)
    assert znodes.decode_producer_id_block(paths.LATEST_PRODUCER_ID_BLOCK, data) == blocks[-1]


async def test_concurrent_claims_get_different_blocks() -> None:
    session = await opened()
    blocks = await asyncio.gather(*(claimed(session, broker_id) for broker_id in range(5)))
    assert sorted(one.first for one in blocks) == [BLOCK_SIZE * n for n in range(5)]
