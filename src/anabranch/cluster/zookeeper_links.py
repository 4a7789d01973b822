"""The links between the nodes of a launcher and ZooKeeper, which can be cut or slowed for one node.

Each node reaches each server through a port of the launcher. The node's ZooKeeper client owns its sockets and their
threads, so a cut inside the node would not be a cut of the connection. A cut resets the node's connections and refuses
new ones; `begin` has other faults. Other traffic of a node needs no port here: rules about links act in the nodes,
which know the sender.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from anabranch.cluster.link_proxy import Kind, LinkFault, Proxy
from anabranch.controller.zk.connect_string import parse_connect_string

HOST: Final = "127.0.0.1"


class ZooKeeperLinks:
    """The links of all nodes to one ensemble, whose servers are named zookeeper-1 and so on.

    Args:
        zookeeper: The connect string, `HOST:PORT,HOST:PORT/CHROOT`.
    """

    def __init__(self, zookeeper: str) -> None:
        self.servers, self._suffix = parse_connect_string(zookeeper)
        self.names = [f"zookeeper-{number}" for number in range(1, len(self.servers) + 1)]
        """The names of the servers at the proxy."""
        self._proxy = Proxy(HOST)
        self._cuts: dict[int, list[LinkFault]] = {}
        self._delays: dict[int, list[LinkFault]] = {}

    async def open(self, node_id: int) -> str:
        """Open the ports of a node. Returns its connect string."""
        ports = [
            await self._proxy.listen(str(node_id), name, address)
            for name, address in zip(self.names, self.servers, strict=True)
        ]
        return ",".join(f"{HOST}:{port}" for port in ports) + self._suffix

    def begin(self, kind: Kind, node_id: int, delay_s: float = 0.0) -> list[LinkFault]:
        """Begin a fault of all links of a node. Returns one fault for each server."""
        return [self._proxy.begin(LinkFault(kind, str(node_id), name, delay_s)) for name in self.names]

    def end(self, faults: Iterable[LinkFault]) -> None:
        """End faults; what they stopped continues."""
        for fault in faults:
            self._proxy.end(fault)

    def is_cut(self, node_id: int) -> bool:
        """Whether a node is cut off from ZooKeeper."""
        return node_id in self._cuts

    def cut(self, node_id: int) -> None:
        """Cut a node off, until `heal`."""
        if node_id not in self._cuts:
            self._cuts[node_id] = self.begin("cut", node_id)

    def delay_s(self, node_id: int) -> float:
        """By how much a node's traffic is late, in each direction."""
        return self._delays[node_id][0].delay_s if node_id in self._delays else 0.0

    def delay(self, node_id: int, delay_s: float) -> None:
        """Delay the traffic of a node in both directions, until `heal`; replaces an earlier delay."""
        self.end(self._delays.pop(node_id, ()))
        self._delays[node_id] = self.begin("delay", node_id, delay_s)

    def heal(self, node_id: int) -> None:
        """Let a node connect again, and without delay."""
        self.end(self._cuts.pop(node_id, ()))
        self.end(self._delays.pop(node_id, ()))

    def heal_all(self) -> None:
        """Let all nodes connect again, and without delay."""
        for node_id in {*self._cuts, *self._delays}:
            self.heal(node_id)

    async def close(self) -> None:
        """Reset everything and stop listening."""
        await self._proxy.close()
