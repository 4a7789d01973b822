"""Claims blocks of producer ids in ZooKeeper.

`/latest_producer_id_block` has the last claimed block. A broker or controller claims the next one with a write
conditional on the version that it read, so no id is ever assigned twice. After a lost response the block may be
claimed: it stays unused. Source: ZkProducerIdManager of Kafka; the controller fences the write, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.session import BadVersion, Create, NodeExists, NoNode, Set

if TYPE_CHECKING:
    from anabranch.controller.zk.session import Op, ZkSession

BLOCK_SIZE: Final = 1000


async def claim_block(
    session: ZkSession, broker_id: int, commit: Callable[[list[Op]], Awaitable[object]]
) -> znodes.ProducerIdBlock:
    """Claim the next block of ids for a broker. Raises ZkError, and the errors of `commit`."""
    path = paths.LATEST_PRODUCER_ID_BLOCK
    while True:
        claimed, version = await _last_claimed(session)
        first = 0 if claimed is None else claimed.last + 1
        block = znodes.ProducerIdBlock(broker_id, first, first + BLOCK_SIZE - 1)
        data = znodes.encode_producer_id_block(block)
        try:
            await commit([Create(path, data) if version is None else Set(path, data, version)])
        except (BadVersion, NodeExists, NoNode):
            continue  # another node has claimed this block
        return block


async def _last_claimed(session: ZkSession) -> tuple[znodes.ProducerIdBlock | None, int | None]:
    """Return the last claimed block, None if none was; and the version of the znode, None without it."""
    path = paths.LATEST_PRODUCER_ID_BLOCK
    try:
        data, stat = await session.get(path)
    except NoNode:
        return None, None
    return znodes.decode_producer_id_block(path, data), stat.version
