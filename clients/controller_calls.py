"""Sends an admin's request to the node that serves the controller's requests, and again if that node changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.clients.network import Network


async def call_controller(
    network: Network,
    request: Any,
    error_of: Callable[[Any], int],
    *,
    timeout_ms: float | None = None,
    on_unknown_outcome: Callable[[], None] = lambda: None,
) -> Any:
    """Send a request to the node that serves the controller's requests, and to its successor if it has moved.

    A request without a response may have succeeded. Before the next attempt `on_unknown_outcome` is called: a refusal
    such as TOPIC_ALREADY_EXISTS can then mean success.
    """

    async def once() -> Any:
        node_id = network.metadata.controller_id
        if node_id not in network.metadata.nodes:
            await network.refresh()
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "no controller is known")
        try:
            connection = await network.connection(node_id)
        except (ConnectionError, TimeoutError):
            await network.refresh()
            raise
        try:
            response = await connection.call(request, timeout_ms=timeout_ms)
        except (ConnectionError, TimeoutError):
            on_unknown_outcome()
            await network.refresh()
            raise
        code = ErrorCode(error_of(response))
        if code == ErrorCode.NOT_CONTROLLER:
            # A broker that had forwarded the request answers this too when the controller dies.
            on_unknown_outcome()
            await network.refresh()
            raise KafkaError(code, f"node {node_id}")
        return response

    return await network.retry(once)
