"""Producer ids, handed out from blocks of a thousand that brokers claim in ZooKeeper.

`/latest_producer_id_block` names the last claimed block; a broker claims the next one with a write conditional on the
version it read, so no id is ever given twice. Ids that are left when a broker stops are lost, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from controller.zk import paths, znodes
from controller.zk.session import BadVersion, NoNode, ZkError
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from controller.zk.session import ZkSession

BLOCK_SIZE: Final = 1000


class ProducerIds:
    """The ids of one broker."""

    def __init__(self, broker_id: int, session: Callable[[], ZkSession]) -> None:
        self._broker_id = broker_id
        self._session = session
        self._next = 0
        self._end = 0  # exclusive
        self._claiming = asyncio.Lock()

    async def draw(self) -> int:
        """A producer id that nobody has. Raises COORDINATOR_LOAD_IN_PROGRESS while ZooKeeper cannot be asked."""
        async with self._claiming:
            if self._next == self._end:
                try:
                    self._next, self._end = await self._claim()
                except ZkError as error:
                    raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer ids: {error}") from None
            self._next += 1
            return self._next - 1

    async def _claim(self) -> tuple[int, int]:
        session, path = self._session(), paths.LATEST_PRODUCER_ID_BLOCK
        while True:
            try:
                data, stat = await session.get(path)
            except NoNode:
                await session.create(path, make_parents=True)
                continue
            last_claimed = znodes.decode_producer_id_block(path, data)
            start = 0 if last_claimed is None else last_claimed.last + 1
            block = znodes.ProducerIdBlock(self._broker_id, start, start + BLOCK_SIZE - 1)
            try:
                await session.set(path, znodes.encode_producer_id_block(block), stat.version)
            except BadVersion:
                continue  # another broker took this block
            return start, start + BLOCK_SIZE
