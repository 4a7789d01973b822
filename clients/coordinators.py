"""Finds and caches the coordinator of a group or a transactional id."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.clients.metadata import ClusterMetadata

Result = TypeVar("Result")

GROUP_KEY_TYPE: Final = 0
_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT})
"""Errors after which the coordinator is looked up again. One that cannot replicate a commit may be cut off, too."""


class Nodes(Protocol):
    """The part of `Network` that finding a coordinator needs."""

    @property
    def metadata(self) -> ClusterMetadata:
        """The client's current metadata."""

    async def refresh(self) -> ClusterMetadata:
        """Refresh the metadata, and wait for it. Raises `ConnectionError` when no node answers."""

    async def call(self, node_id: int, request: Any, *, timeout_ms: float | None, channel: int) -> Any:
        """Send a request to one node and wait for its response."""

    async def ask_any(self, request: Any) -> Any:
        """Return the first response of any node to a request that changes nothing."""

    def doubt(self, kind: type[Any]) -> None:
        """Note that the last answer to this kind of request was of no use: ask another node next time."""

    async def retry(self, operation: Callable[[], Awaitable[Result]]) -> Result:
        """Run `operation` until it neither loses its connection nor fails with a retriable `KafkaError`."""


class Coordinators:
    """The cached coordinators of one client, by key and key type (0 a group, 1 a transactional id)."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._known: dict[tuple[str, int], int] = {}
        self._wrong: dict[tuple[str, int], int] = {}
        """The last coordinators that were forgotten. A node that names one again may be cut off from the cluster."""

    async def find(self, key: str, key_type: int) -> int:
        """Return the coordinator's node id. Raises KafkaError or ConnectionError if it is not found in time."""
        known = self._known.get((key, key_type))
        if known is not None and known in self._nodes.metadata.nodes:
            return known
        node_id = await self._nodes.retry(lambda: self._look_up(key, key_type))
        if self._wrong.pop((key, key_type), None) == node_id:
            self._nodes.doubt(FindCoordinatorRequest)
        self._known[key, key_type] = node_id
        return node_id

    def forget(self, key: str, key_type: int) -> None:
        """Drop a cached coordinator: `find` looks it up again."""
        wrong = self._known.pop((key, key_type), None)
        if wrong is not None:
            self._wrong[key, key_type] = wrong

    async def call(
        self,
        key: str,
        request: Any,
        error_of: Callable[[Any], int],
        *,
        timeout_ms: float | None,
        channel: int,
        doubt_ms: float | None = None,
        on_unknown_outcome: Callable[[], None] = lambda: None,
    ) -> Any:
        """Send to a group's coordinator, and to its successor if it moved; other errors are left in the response.

        A response that takes longer than `doubt_ms` is awaited as long as the node coordinates. `on_unknown_outcome` is
        called before the next attempt, if the last one may have succeeded.
        """

        async def once() -> Any:
            node_id = await self.find(key, GROUP_KEY_TYPE)
            try:
                call = self._nodes.call(node_id, request, timeout_ms=timeout_ms, channel=channel)
                moves = None if doubt_ms is None else self._wait_until_moved(key, node_id, doubt_ms / 1000)
                response = await (call if moves is None else _first_of(call, moves))
            except (ConnectionError, TimeoutError):
                on_unknown_outcome()
                self.forget(key, GROUP_KEY_TYPE)
                raise
            code = ErrorCode(error_of(response))
            if code in _MOVED:
                on_unknown_outcome()
                self.forget(key, GROUP_KEY_TYPE)
                raise KafkaError(code, f"coordinator of {key!r}")
            if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise KafkaError(code, f"coordinator of {key!r}")
            return response

        return await self._nodes.retry(once)

    async def _wait_until_moved(self, key: str, node_id: int, interval_s: float) -> None:
        """Look repeatedly whether a node still coordinates a group; raise ConnectionError once it does not."""
        while True:
            await asyncio.sleep(interval_s)
            try:
                moved = await self._look_up(key, GROUP_KEY_TYPE) != node_id
            except (ConnectionError, TimeoutError, KafkaError):
                continue
            if moved:
                raise ConnectionError(f"node {node_id} no longer coordinates {key!r}")

    async def _look_up(self, key: str, key_type: int) -> int:
        nodes = self._nodes
        request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
        response: FindCoordinatorResponse = await nodes.ask_any(request)
        if response.coordinators:
            found = response.coordinators[0]
            code, node_id = ErrorCode(found.error_code), found.node_id
        else:
            code, node_id = ErrorCode(response.error_code), response.node_id
        if code != ErrorCode.NONE:
            raise KafkaError(code, f"coordinator of {key!r}")
        if node_id not in nodes.metadata.nodes:
            await nodes.refresh()
            if node_id not in nodes.metadata.nodes:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"node {node_id} is not known yet")
        return node_id


async def _first_of(call: Coroutine[Any, Any, Result], limit: Coroutine[Any, Any, None]) -> Result:
    """Return the result of a call, unless `limit` raises before."""
    calling, limiting = asyncio.create_task(call), asyncio.create_task(limit)
    try:
        await asyncio.wait([calling, limiting], return_when=asyncio.FIRST_COMPLETED)
        if not calling.done():
            await limiting
        return await calling
    finally:
        for task in (calling, limiting):
            task.cancel()
        await asyncio.gather(calling, limiting, return_exceptions=True)
