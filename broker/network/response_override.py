"""What may be raised in place of an answer, by who wants the connection to do something else.

It is played by the task that serves the connection, so that it may wait; the requests behind wait meanwhile. A
connection that nobody interferes with pays nothing for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from anabranch.protocol.varint import Buffer

FOREVER_MS: Final = 10**9


class ConnectionHandle(Protocol):
    """A connection in the hands of an interference."""

    def encode_response(self, response: Any) -> list[Buffer]:
        """The bytes of an answer to the open request, which is closed by that."""

    def send(self, chunks: list[Buffer]) -> None:
        """Write bytes to the peer."""

    async def wait(self, wait_ms: int) -> bool:
        """Do nothing for so long, or until the connection is to end; whether it may go on."""

    def stop_reading(self) -> None:
        """Read nothing any more."""

    def close(self) -> None:
        """Close once what was sent has left."""

    def abort(self) -> None:
        """Close at once."""


class ResponseOverride(Exception):
    """Raised by a dispatcher in place of an answer."""

    response: Any = None
    """The answer that it makes something of, if there is one."""

    async def apply(self, connection: ConnectionHandle) -> None:
        """Do it. An open request that is left open is never answered, and nothing behind it is."""
        raise NotImplementedError
