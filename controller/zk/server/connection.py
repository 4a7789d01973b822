"""One connection to the built-in ZooKeeper: bytes in, bytes out, without a socket.

The first four bytes are a command of four letters or the length of the connect request; then every message is a request
of the session, executed in order when it is complete. A client that sends anything else is disconnected, with one line
in the log. No length is trusted: at most one request is held. Source: `NIOServerCnxn`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from anabranch.controller.zk.server import jute, responses
from anabranch.controller.zk.server.jute import MalformedRequest
from anabranch.controller.zk.server.requests import CloseSession, read_connect_request, read_request
from anabranch.controller.zk.server.service import (
    NO_LOGIN,
    LoginRefused,
    ServerSession,
    Watcher,
    ZooKeeperService,
    code_of,
)
from anabranch.controller.zk.server.session_password import password_of
from anabranch.controller.zk.session import ZkError
from anabranch.controller.zk.sizes import REQUEST_BYTES_MAX

log = logging.getLogger(__name__)

LENGTH_BYTES: Final = 4


class ServerConnection(Watcher):
    """The connection of one client.

    Args:
        service: The server.
        client: The client's address, for the log.
        write: Sends bytes to the client.
        hang_up: Closes the connection when all is sent.
    """

    def __init__(
        self, service: ZooKeeperService, client: str, write: Callable[[bytes], None], hang_up: Callable[[], None]
    ) -> None:
        self._service = service
        self._client = client
        self._write = write
        self._hang_up = hang_up
        self._received = bytearray()
        self.session: ServerSession | None = None
        """The session, after the connect request."""
        self.closed = False
        self.paused = False
        """Whether requests wait, because the client does not read its responses."""

    def receive(self, data: bytes) -> None:
        """Execute the requests that are complete now, unless they wait."""
        if self.closed:
            return
        self._received += data
        try:
            while not (self.closed or self.paused) and (message := self._next_message()) is not None:
                self._on_message(message)
        except MalformedRequest as error:
            self.close(str(error))

    def lost(self) -> None:
        """Take note that the connection does not exist any more."""
        self.closed = True
        self._service.disconnect(self)

    def send(self, message: bytes) -> None:
        """Send a message."""
        if not self.closed:
            self._write(jute.buffer(message))

    def close(self, reason: str = "") -> None:
        """Close the connection when all is sent; log a reason that is an error of the client."""
        if self.closed:
            return
        if reason:
            log.warning("closed the ZooKeeper connection of %s: %s", self._client, reason)
        self.lost()
        self._received.clear()
        self._hang_up()

    def _next_message(self) -> bytes | None:
        if len(self._received) < LENGTH_BYTES:
            return None
        start = bytes(self._received[:LENGTH_BYTES])
        if self.session is None and start.isalpha():
            self._on_command(start.decode())
            return None
        length = int.from_bytes(start, "big", signed=True)
        if not 0 <= length <= REQUEST_BYTES_MAX:
            raise MalformedRequest(f"a request of {length:,} bytes; the limit is {REQUEST_BYTES_MAX:,}")
        end = LENGTH_BYTES + length
        if len(self._received) < end:
            return None
        message = bytes(self._received[LENGTH_BYTES:end])
        del self._received[:end]
        return message

    def _on_message(self, message: bytes) -> None:
        if self.session is None:
            self._on_connect(message)
            return
        request = read_request(message)
        self._service.touch(self.session)
        try:
            body = self._service.execute(self.session, self, request.body)
        except ZkError as error:
            self.send(responses.response(request.xid, self._service.tree.zxid, code_of(error)))
            if isinstance(error, LoginRefused):
                self.close(f"a login: {NO_LOGIN}")
            return
        self.send(responses.response(request.xid, self._service.tree.zxid, body=body))
        if isinstance(request.body, CloseSession):
            self.close()

    def _on_connect(self, message: bytes) -> None:
        request = read_connect_request(message)
        session = self._service.connect(request, self)
        read_only = request.knows_read_only
        if session is None:
            self.send(responses.connect_response(0, 0, read_only=read_only))
            self.close()
            return
        self.session = session
        password = password_of(session.session_id)
        self.send(responses.connect_response(session.session_id, session.timeout_ms, password, read_only=read_only))

    def _on_command(self, command: str) -> None:
        """Answer a command of four letters, and close the connection."""
        if command == "ruok":
            answer = "imok"
        elif command == "srvr":
            answer = self._status()
        else:
            answer = f"{command} is not executed because it is not in the whitelist.\n"
        self._write(answer.encode())
        self.close()

    def _status(self) -> str:
        tree, sessions = self._service.tree, self._service.sessions.values()
        connections = sum(session.connection is not None for session in sessions)
        return (
            f"Zookeeper version: built into anabranch\nConnections: {connections}\nZxid: {tree.zxid:#x}\n"
            f"Mode: standalone\nNode count: {len(tree.nodes)}\n"
        )
