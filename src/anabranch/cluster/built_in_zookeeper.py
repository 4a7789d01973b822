"""The built-in ZooKeeper as a child process: what a cluster of processes uses by default, without Java.

It has a process of its own, so no other work delays its clients' heartbeats, and it can be killed and started again as
a real one. Its znodes survive that; its sessions do not, so each node registers again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from anabranch.cluster.node_process import COMMAND_MODULE
from anabranch.cluster.zookeeper import ZooKeeperProcess
from anabranch.protocol.host_port import format_host_port


class BuiltInZooKeeper(ZooKeeperProcess):
    """One server: `anabranch zookeeper --built-in`."""

    def _command(self, directory: Path) -> list[str]:
        words = ["zookeeper", "--built-in", "--listen", format_host_port(self._host, self.port)]
        return [sys.executable, "-m", COMMAND_MODULE, *words, "--data-dir", str(directory)]
