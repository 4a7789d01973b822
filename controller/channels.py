"""Ordered queues of requests from the controller to each broker (Kafka's ControllerChannelManager).

One request is in flight per broker. It is resent over a new connection until the broker answers or is gone: skipping
one would leave a gap in that broker's state. A queue belongs to one incarnation of a broker; closing it drops its
requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from anabranch.clients.connection import Connection
from anabranch.controller.events import ResponseReceived
from anabranch.controller.model import Broker
from anabranch.controller.settings import ControllerSettings
from anabranch.protocol.connection import NODE_SOFTWARE
from anabranch.protocol.errors import KafkaError

log = logging.getLogger(__name__)


class ControllerChannelManager:
    """The queues to all brokers."""

    def __init__(self, settings: ControllerSettings, answered: Callable[[ResponseReceived], None]) -> None:
        self._settings = settings
        self._answered = answered
        self._channels: dict[int, ControllerChannel] = {}
        self._closing: set[asyncio.Task[None]] = set()
        """Cancelled tasks that have not ended yet."""

    def open(self, broker: Broker) -> None:
        """Open a queue to this incarnation of a broker, replacing that of an earlier one."""
        self.close(broker.id)
        self._channels[broker.id] = ControllerChannel(broker, self._settings, self._answered)

    def close(self, broker_id: int) -> None:
        """Drop a broker's queue."""
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            closing = channel.close()
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def send(self, broker_id: int, broker_epoch: int, request: Any) -> None:
        """Queue a request, unless this incarnation of the broker is gone."""
        channel = self._channels.get(broker_id)
        if channel is not None and channel.broker.epoch == broker_epoch:
            channel.send(request)

    async def close_all(self) -> None:
        """Drop all queues."""
        for broker_id in list(self._channels):
            self.close(broker_id)
        await asyncio.gather(*self._closing, return_exceptions=True)


class ControllerChannel:
    """The queue to one incarnation of one broker, and the task that empties it."""

    def __init__(
        self, broker: Broker, settings: ControllerSettings, answered: Callable[[ResponseReceived], None]
    ) -> None:
        self.broker = broker
        self._settings = settings
        self._answered = answered
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._connection: Connection | None = None
        self._task = asyncio.ensure_future(self._run())

    def send(self, request: Any) -> None:
        """Queue a request."""
        self._queue.put_nowait(request)

    def close(self) -> asyncio.Task[None]:
        """Stop sending. Returns the task that is ending."""
        self._task.cancel()
        return self._task

    async def _run(self) -> None:
        try:
            while True:
                request = await self._queue.get()
                response = await self._call(request)
                self._answered(ResponseReceived(self.broker.id, self.broker.epoch, request, response))
        finally:
            if self._connection is not None:
                self._connection.abort("the controller has closed this queue")

    async def _call(self, request: Any) -> Any:
        failures = 0
        while True:
            try:
                connection = await self._connect()
                return await connection.call(request, timeout_ms=self._settings.request_timeout_ms)
            except (ConnectionError, TimeoutError, KafkaError) as error:
                # Log once per outage: a dead broker is retried until ZooKeeper notices, after a session timeout.
                if failures == 0:
                    log.info("controller %d: broker %d: %s", self._settings.node_id, self.broker.id, error)
                failures += 1
                if self._connection is not None:
                    await self._connection.close()
                    self._connection = None
            await asyncio.sleep(self._settings.retry_backoff_ms / 1000)

    async def _connect(self) -> Connection:
        if self._connection is None or self._connection.closed:
            endpoint = self.broker.endpoint(self._settings.inter_broker_listener)
            if endpoint is None:
                raise ConnectionError(f"the broker has no listener {self._settings.inter_broker_listener}")
            self._connection = await Connection.open(
                endpoint.host,
                endpoint.port,
                client_id=f"controller-{self._settings.node_id}",
                security=self._settings.security,
                software_name=NODE_SOFTWARE,
            )
        return self._connection
