"""Allocates producer ids from blocks that the controller assigns to this broker (KIP-730).

Unused ids are lost when a broker stops, as in Kafka. Without a block, producers get a retriable error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from anabranch.controller.zk.session import ZkError
from anabranch.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.membership.controller_link import ControllerLink

Claim = Callable[[], Awaitable[tuple[int, int]]]
"""Claims a block. Returns its first id and its size."""


class ProducerIds:
    """The producer ids of one broker."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._next = 0
        self._end = 0  # exclusive
        self._claiming = asyncio.Lock()

    async def draw(self) -> int:
        """Allocate a unique producer id. Raises COORDINATOR_LOAD_IN_PROGRESS if no block is available."""
        async with self._claiming:
            if self._next == self._end:
                try:
                    self._next, count = await self._claim()
                except (ZkError, ConnectionError, TimeoutError, KafkaError) as error:
                    raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer ids: {error}") from None
                self._end = self._next + count
            self._next += 1
            return self._next - 1


def from_controller(link: ControllerLink, broker_id: int, broker_epoch: Callable[[], int]) -> Claim:
    """Return a function that claims blocks from the active controller."""

    async def claim() -> tuple[int, int]:
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch())
        response = await link.call(request)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(response.error_code))
        return response.producer_id_start, response.producer_id_len

    return claim
