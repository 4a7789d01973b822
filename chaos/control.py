"""Controls a proxy from another process: one JSON object per line on a Unix socket.

{"do": "begin", "kind": "cut", "source": "1", "target": "2"}   -> {"fault": 1, "what": "cut 1 -> 2"}
{"do": "end", "fault": 1}                                      -> {"what": "cut 1 -> 2", "hits": 3}
{"do": "heal"} {"do": "reset", "source": "*", "target": "2"}   -> {"count": 4}
{"do": "links"}                                                -> {"links": [["1", "2"], ...], "faults": [...]}
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from anabranch.cluster.control_socket import ControlSocket, OrderRefused
from anabranch.cluster.link_proxy import ANYBODY, KINDS, LinkFault, Proxy

SOCKET_NAME: Final = "proxy.control"


class Control(ControlSocket):
    """The server side, next to a proxy."""

    def __init__(self, proxy: Proxy) -> None:
        super().__init__(self._answer)
        self._proxy = proxy
        self._faults: dict[int, LinkFault] = {}

    async def _answer(self, order: dict[str, Any]) -> dict[str, Any]:
        return self.carry_out(order)

    def carry_out(self, order: dict[str, Any]) -> dict[str, Any]:
        """Execute one command. Returns the response. Raises KeyError or ValueError for an invalid one."""
        match order.pop("do"):
            case "begin":
                if order["kind"] not in KINDS:
                    raise ValueError(f"kind is one of {', '.join(KINDS)}")
                self._check(order["source"], order["target"])
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
                source, target = order.get("source", ANYBODY), order.get("target", ANYBODY)
                self._check(source, target)
                return {"count": self._proxy.reset(source, target)}
            case "links":
                links = Counter((link.source, link.target) for link in self._proxy.links)
                return {
                    "links": [[*link, count] for link, count in sorted(links.items())],
                    "faults": [f"{fault}, met {fault.hits} times" for fault in self._proxy.faults],
                }
            case other:
                raise ValueError(f"cannot {other}")

    def _check(self, source: str, target: str) -> None:
        for end, known in ((source, self._proxy.sources), (target, self._proxy.targets)):
            if end not in known:
                raise OrderRefused(f"no link has an end {end!r}; the ends are {', '.join(known)}")
