"""A control socket between processes of one user: one JSON object per line on a Unix socket.

    {"do": "start", "node": 2}    ->    {"pid": 4711}    or    {"error": "node 2 is running already (pid 4710)"}

A socket that other processes are to find without knowing its path lies in one directory of this user, named after the
process id. The socket that a killed process leaves there does not answer; the next process that tries it removes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

SUFFIX: Final = ".door"
Answer = dict[str, Any]


class OrderRefused(RuntimeError):
    """The other process is unreachable, or refused the command; the message says which."""


class ControlSocket:
    """The listening side: passes each command to `carry_out` and sends back its result or its error."""

    def __init__(self, carry_out: Callable[[Answer], Awaitable[Answer]]) -> None:
        self._carry_out = carry_out
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def listen(self, path: Path) -> None:
        """Listen on this path; replace the socket of a killed process."""
        self._server = await asyncio.start_unix_server(self._serve, path)
        self._path = path

    async def close(self) -> None:
        """Stop listening, and remove the socket."""
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)  # a transport closes in the next iteration of the loop
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                try:
                    answer = await self._carry_out(json.loads(line))
                except OrderRefused as error:
                    answer = {"error": str(error)}
                except (ValueError, KeyError, TypeError) as error:
                    answer = {"error": f"{line.decode(errors='replace').strip()}: {error!r}"}
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        self._writers.discard(writer)
        writer.transport.abort()


async def send_order(path: Path, what: str, **details: Any) -> Answer:
    """Send a command to the process that listens on a control socket. Raises OrderRefused."""
    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except OSError as error:
        raise OrderRefused(f"no process listens at {path}: {error}") from None
    try:
        writer.write(json.dumps({"do": what, **details}).encode() + b"\n")
        line = await reader.readline()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    if not line:
        raise OrderRefused(f"the process that listened at {path} ended without a response")
    answer: Answer = json.loads(line)
    if "error" in answer:
        raise OrderRefused(answer["error"])
    return answer


def own_socket_path() -> Path:
    """The path of this process's control socket, where other processes of this user find it."""
    return sockets_directory() / f"{os.getpid()}{SUFFIX}"


def sockets_directory() -> Path:
    """The directory of this user's control sockets, with mode 0700. Raises OrderRefused if another user owns it."""
    directory = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"anabranch-{os.getuid()}"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise OrderRefused(f"{directory} belongs to another user")
    return directory


def socket_paths() -> list[Path]:
    """The control sockets of the processes that run. An id may have passed to a process of another user."""
    found = []
    for path in sorted(sockets_directory().glob(f"*{SUFFIX}")):
        try:
            os.kill(int(path.stem), 0)
            found.append(path)
        except (ProcessLookupError, PermissionError, ValueError):
            path.unlink(missing_ok=True)
    return found
