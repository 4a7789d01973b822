"""Fences controller requests by controller epoch and broker epoch.

LeaderAndIsr, StopReplica and UpdateMetadata carry the controller's epoch and the target's broker epoch. The broker
refuses requests of an earlier controller, and requests for an earlier registration of this broker. The three APIs share
one fence: an epoch from one of them applies to all.

A request for thousands of partitions is handled in steps, between which the event loop runs other tasks. Controller
requests do not interleave. If the broker's registration changes meanwhile, the request stops; completed steps belong to
the earlier registration.

Source: the epoch checks in Kafka's KafkaApis and ReplicaManager; KIP-380 for broker epochs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.protocol.apis.leader_and_isr import LeaderAndIsrRequest
    from anabranch.protocol.apis.stop_replica import StopReplicaRequest
    from anabranch.protocol.apis.update_metadata import UpdateMetadataRequest

Row = TypeVar("Row")

ROWS_AT_ONCE: Final = 10
"""Partitions per step: opening, creating or renaming a log takes some tenths of a millisecond."""


class ControllerFence:
    """The highest controller epoch received, and the broker epoch of the current registration."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """Held for a whole request: requests are handled in order of arrival.

        Requests may arrive over two connections. The controller may have retried a waiting request, and then sent the
        deletion of its replica.
        """
        self.controller_epoch = 0
        self.broker_epoch = -1
        """The czxid of the current registration; -1 without one."""
        self._registered: asyncio.Event | None = None

    def await_registration(self) -> None:
        """Hold all controller requests until `register`, because their target registration is unknown.

        A controller that has not noticed a broker's crash sends its next request to the restarted process. The log
        there may have lost its end with the machine's memory.
        """
        self._registered = asyncio.Event()

    def register(self, broker_epoch: int) -> None:
        """Set the broker epoch of a new registration."""
        self.broker_epoch = broker_epoch
        if self._registered is not None:
            self._registered.set()

    async def wait_registered(self) -> None:
        """Wait until this broker's registration is known."""
        if self._registered is not None:
            await self._registered.wait()

    def admit(self, *, controller_epoch: int, broker_epoch: int) -> None:
        """Raise STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH, or store the (newer) controller epoch.

        A higher broker epoch belongs to a registration whose czxid this broker has not read yet: it is admitted.
        """
        if broker_epoch != -1 and broker_epoch < self.broker_epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker epoch {broker_epoch} < {self.broker_epoch}")
        if controller_epoch < self.controller_epoch:
            raise KafkaError(
                ErrorCode.STALE_CONTROLLER_EPOCH, f"controller epoch {controller_epoch} < {self.controller_epoch}"
            )
        self.controller_epoch = controller_epoch

    async def in_steps(
        self, request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest, rows: Iterable[Row]
    ) -> AsyncIterator[Row]:
        """Yield the rows of an admitted request in steps. Raises KafkaError, as `admit`, once it is stale."""
        for number, row in enumerate(rows):
            if number and number % ROWS_AT_ONCE == 0:
                await asyncio.sleep(0)
                self.admit(controller_epoch=request.controller_epoch, broker_epoch=request.broker_epoch)
            yield row
