"""Blocks of producer ids, claimed in ZooKeeper.

`/latest_producer_id_block` names the last claimed block; the next one is claimed with a write conditional on the
version that was read, so no id is ever given twice, whoever claims. Source: ZkProducerIdManager of Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.zk import paths, znodes
from controller.zk.session import BadVersion, NoNode

if TYPE_CHECKING:
    from controller.zk.session import ZkSession

BLOCK_SIZE: Final = 1000


async def claim_block(session: ZkSession, broker_id: int) -> znodes.ProducerIdBlock:
    """The next block, now the broker's. Raises ZkError."""
    path = paths.LATEST_PRODUCER_ID_BLOCK
    while True:
        try:
            data, stat = await session.get(path)
        except NoNode:
            await session.create(path, make_parents=True)
            continue
        last_claimed = znodes.decode_producer_id_block(path, data)
        first = 0 if last_claimed is None else last_claimed.last + 1
        block = znodes.ProducerIdBlock(broker_id, first, first + BLOCK_SIZE - 1)
        try:
            await session.set(path, znodes.encode_producer_id_block(block), stat.version)
        except BadVersion:
            continue  # somebody else took this block
        return block
