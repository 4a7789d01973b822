"""How a proxy that runs in one process is told about faults from another: one JSON object per line on a Unix socket.

{"do": "begin", "kind": "cut", "source": "1", "target": "2"}   -> {"fault": 1, "what": "cut 1 -> 2"}
{"do": "end", "fault": 1}                                      -> {"what": "cut 1 -> 2", "hits": 3}
{"do": "heal"} {"do": "reset", "source": "*", "target": "2"}   -> {"count": 4}
{"do": "links"}                                                -> {"links": [["1", "2"], ...], "faults": [...]}
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

from chaos.proxy import ANYBODY, KINDS, LinkFault, Proxy

SOCKET_NAME: Final = "proxy.control"


class Refused(RuntimeError):
    """The proxy did not understand, or is not there."""


class Control:
    """The listening side, next to a proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._faults: dict[int, LinkFault] = {}
        self._server: asyncio.Server | None = None

    async def listen(self, path: Path) -> None:
        """Take orders on this socket."""
        self._server = await asyncio.start_unix_server(self._serve, path)

    async def close(self) -> None:
        """Take no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                try:
                    answer = self.carry_out(json.loads(line))
                except (ValueError, KeyError, TypeError) as error:
                    answer = {"error": f"{line.decode(errors='replace').strip()}: {error!r}"}
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()

    def carry_out(self, order: dict[str, Any]) -> dict[str, Any]:
        """One order; KeyError or ValueError when it makes no sense."""
        match order.pop("do"):
            case "begin":
                if order["kind"] not in KINDS:
                    raise ValueError(f"kind is one of {', '.join(KINDS)}")
                number = max(self._faults, default=0) + 1
                fault = self._faults[number] = self._proxy.begin(LinkFault(**order))
                return {"fault": number, "what": str(fault)}
            case "end":
                fault = self._faults.pop(order["fault"])
                self._proxy.end(fault)
                return {"what": str(fault), "hits": fault.hits}
            case "heal":
                self._faults.clear()
                return {"count": self._proxy.heal()}
            case "reset":
                return {"count": self._proxy.reset(order.get("source", ANYBODY), order.get("target", ANYBODY))}
            case "links":
                links = Counter((link.source, link.target) for link in self._proxy.links)
                return {
                    "links": [[*link, count] for link, count in sorted(links.items())],
                    "faults": [f"{fault}, met {fault.hits} times" for fault in self._proxy.faults],
                }
            case other:
                raise ValueError(f"cannot {other}")


async def order(path: Path, what: str, **details: Any) -> dict[str, Any]:
    """Have a proxy in another process do something. `Refused` when it cannot."""
    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except OSError as error:
        raise Refused(f"no proxy listens at {path}: {error}") from None
    try:
        writer.write(json.dumps({"do": what, **details}).encode() + b"\n")
        answer: dict[str, Any] = json.loads(await reader.readline())
    finally:
        writer.close()
    if "error" in answer:
        raise Refused(answer["error"])
    return answer
