"""Decides which requests of a controller this broker obeys, and when it can tell.

A LeaderAndIsr, StopReplica or UpdateMetadata names the controller's epoch and the broker epoch that it is meant for.
The broker refuses a controller that was replaced, and a request that was meant for an earlier life of this broker. The
three APIs share one fence: an epoch that came with one of them counts for all.

A request about thousands of partitions is carried out in steps between which the loop has others work. No other
request of a controller comes in between, and one that was meant for a life of this broker that ends meanwhile goes no
further: what it has done by then was done in that life.

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

Row = TypeVar("Row")

ROWS_AT_ONCE: Final = 10
"""Partitions of one step: a log that is opened, made or put aside takes some tenths of a millisecond."""


class ControllerFence:
    """The highest controller epoch that this broker has seen, and the epoch of its own registration."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """Held for the whole of a request, so that requests are carried out in the order in which they came.

        They may come over two connections: what has to wait here was perhaps given up and sent again, and followed by
        the deletion of the replica that it is about.
        """
        self.controller_epoch = 0
        self.broker_epoch = -1
        """The czxid of this broker's registration; -1 while it has none."""
        self._registered: asyncio.Event | None = None

    def await_registration(self) -> None:
        """From now until `register` no request of a controller is admitted, or refused: which life it means is unknown.

        A controller that has not noticed that this broker was killed sends its next request to the process that came
        after it, and would find a log that may have lost its end with the machine's memory.
        """
        self._registered = asyncio.Event()

    def register(self, broker_epoch: int) -> None:
        """Note the (new) epoch with which this broker is registered."""
        self.broker_epoch = broker_epoch
        if self._registered is not None:
            self._registered.set()

    async def registered(self) -> None:
        """Wait until it is known for which life of this broker a request can be meant."""
        if self._registered is not None:
            await self._registered.wait()

    def admit(self, *, controller_epoch: int, broker_epoch: int) -> None:
        """Raise STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH, or remember the (newer) controller epoch.

        A broker epoch above our own belongs to a registration whose czxid we have yet to read: it is let in.
        """
        if broker_epoch != -1 and broker_epoch < self.broker_epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker epoch {broker_epoch} < {self.broker_epoch}")
        if controller_epoch < self.controller_epoch:
            raise KafkaError(
                ErrorCode.STALE_CONTROLLER_EPOCH, f"controller epoch {controller_epoch} < {self.controller_epoch}"
            )
        self.controller_epoch = controller_epoch

    async def in_steps(
        self, request: LeaderAndIsrRequest | StopReplicaRequest, rows: Iterable[Row]
    ) -> AsyncIterator[Row]:
        """The rows of a request that was admitted, a few at a time. KafkaError as of `admit` if it is so no more."""
        for number, row in enumerate(rows):
            if number and number % ROWS_AT_ONCE == 0:
                await asyncio.sleep(0)
                self.admit(controller_epoch=request.controller_epoch, broker_epoch=request.broker_epoch)
            yield row
