"""Sends requests to the active controller, over one connection to the address in /controller.

It carries AlterPartition and ControlledShutdown, and forwards admin requests when the active controller is a node
without replicas, which Metadata does not show to clients. After a controller failover, calls go to the new controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from anabranch.clients.connection import Connection
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.body import MalformedZnode
from anabranch.controller.zk.session import NoNode, ZkError
from anabranch.protocol.connection import NODE_SOFTWARE

if TYPE_CHECKING:
    from anabranch.clients.security import Security
    from anabranch.controller.zk.session import WatchEvent, ZkSession
    from anabranch.controller.zk.znodes import ControllerBody


log: Final = logging.getLogger(__name__)


class ControllerLink:
    """Finds and calls the active controller."""

    def __init__(
        self,
        session: Callable[[], ZkSession],
        *,
        client_id: str,
        request_timeout_ms: int,
        security: Security | None = None,
    ) -> None:
        self._session = session
        self._security = security
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._connection: Connection | None = None
        self._connected_to: ControllerBody | None = None
        self._opening = asyncio.Lock()
        self._active: ControllerBody | None = None
        self._changes = 0
        self._closing: asyncio.Future[None] | None = None

    async def active(self) -> ControllerBody | None:
        """Return the active controller, or None. The result is cached until the watch fires."""
        while self._active is None:
            seen = self._changes
            try:
                data, _ = await self._session().get(paths.CONTROLLER, self._on_change)
            except NoNode:
                return None
            except ZkError as error:
                log.debug("cannot read %s: %s", paths.CONTROLLER, error)
                return None
            try:
                found = znodes.decode_controller(paths.CONTROLLER, data)
            except MalformedZnode as error:
                log.error("cannot reach a controller: %s", error)
                return None
            if seen == self._changes:
                self._active = found
            # The watch may fire before the read that set it returns; the data is stale then.
        return self._active

    async def call(self, request: Any, *, timeout_ms: int | None = None) -> Any:
        """Send a request to the active controller. Raises ConnectionError if there is none or the connection fails."""
        connection = await self._connect()
        try:
            return await connection.call(request, timeout_ms=timeout_ms or self._request_timeout_ms)
        except (ConnectionError, TimeoutError):
            await self._drop(connection)
            raise

    async def forward(self, request: Any, *, timeout_ms: int, version: int | None = None) -> Any:
        """Forward a client's admin request over a separate connection.

        A resize can take long, and needs AlterPartition responses on the shared connection meanwhile.
        """
        active = await self.active()
        if active is None:
            raise ConnectionError("there is no active controller")
        connection = await self._open(active)
        try:
            return await connection.call(request, timeout_ms=timeout_ms, version=version)
        finally:
            await connection.close()

    async def close(self) -> None:
        """Close the connection, if any."""
        if self._connection is not None:
            await self._drop(self._connection)

    async def _connect(self) -> Connection:
        async with self._opening:
            active = await self.active()
            if active is None:
                raise ConnectionError("there is no active controller")
            # If the controller changes while a connection opens, the connection leads to the previous one.
            if self._connection is not None and self._connected_to == active and not self._connection.closed:
                return self._connection
            if self._connection is not None:
                self._connection.abort("another controller is active")
            self._connection, self._connected_to = await self._open(active), active
            return self._connection

    async def _open(self, active: ControllerBody) -> Connection:
        return await Connection.open(
            active.host, active.port, client_id=self._client_id, security=self._security, software_name=NODE_SOFTWARE
        )

    def _on_change(self, event: WatchEvent) -> None:
        self._active = None
        self._changes += 1
        connection, self._connection = self._connection, None
        if connection is not None:
            # Pending calls fail; their callers retry with the new controller.
            self._closing = asyncio.ensure_future(connection.close())

    async def _drop(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None
            self._active = None
        await connection.close()
