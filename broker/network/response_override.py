"""Exceptions that override a response.

The connection's task applies the override, so it may wait; later requests wait meanwhile. Connections without overrides
pay nothing for this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from anabranch.protocol.varint import Buffer

FOREVER_MS: Final = 10**9


class ConnectionHandle(Protocol):
    """The operations of a connection that an override may use."""

    def encode_response(self, response: Any) -> list[Buffer]:
        """Encode the response to the open request, and close the request."""

    def send(self, chunks: list[Buffer]) -> None:
        """Write bytes to the peer."""

    async def wait(self, wait_ms: int) -> bool:
        """Wait for this time or until the connection is to end; return whether to continue."""

    def stop_reading(self) -> None:
        """Stop reading."""

    def close(self) -> None:
        """Close once all sent bytes have left."""

    def abort(self) -> None:
        """Close at once."""


class ResponseOverride(Exception):
    """Raised by a dispatcher in place of a response."""

    response: Any = None
    """The response that the override changes, if there is one."""

    async def apply(self, connection: ConnectionHandle) -> None:
        """Apply the override. A request that it leaves open is never answered, nor is any request behind it."""
        raise NotImplementedError
