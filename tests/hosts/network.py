"""Hosts on one switch: network namespaces with an address, a cable that can be unplugged, and processes.

Nothing of the machine's own network is touched: the switch is a bridge in a namespace of its own. Needs Linux, root and
iproute2; `why_unavailable` says what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

SUBNET: Final = "10.0.0"
"""That of docs/hosts.md; it exists only in the namespaces."""
NAMED: Final = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"')
"""Gives a program a machine name of its own."""
STOP_S: Final = 30.0


def why_unavailable() -> str:
    """What is missing here, or an empty string."""
    if sys.platform != "linux" or shutil.which("ip") is None:
        return "network namespaces need Linux, and ip of iproute2"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"anabranch-{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return "" if made.returncode == 0 else f"no network namespace could be made: {made.stderr.strip()}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Network:
    """`with Network(folder, "one", "two") as network` makes the hosts, and ends all that runs on them afterwards."""

    def __init__(self, folder: Path, *hosts: str) -> None:
        self.hosts = hosts
        self._folder = folder
        self._switch = self.namespace("switch")
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        _ip("netns", "add", self._switch)
        try:
            _ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
            _ip("-n", self._switch, "link", "set", "bridge", "up")
            for host in self.hosts:
                self._add(host)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.communicate()
        for name in (*map(self.namespace, self.hosts), self._switch):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def address(self, host: str) -> str:
        """Where the others reach a host."""
        return f"{SUBNET}.{self.hosts.index(host) + 1}"

    def run(self, host: str, name: str, words: Sequence[str], **how: Any) -> subprocess.Popen[str]:
        """Start a program on a host, which is its machine's name. Its stderr is in the file of this name."""
        with (self._folder / f"{host}-{name}.txt").open("a") as errors:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace(host), *NAMED, host, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                **how,
            )
        self._processes.append(process)
        return process

    def cut(self, host: str) -> None:
        """Unplug the cable: packets are lost, and connections stay open."""
        _ip("-n", self._switch, "link", "set", host, "down")

    def heal(self, host: str) -> None:
        """Plug it in again."""
        _ip("-n", self._switch, "link", "set", host, "up")

    def namespace(self, host: str) -> str:
        return f"anabranch-{os.getpid()}-{host}"

    def _add(self, host: str) -> None:
        inside = self.namespace(host)
        _ip("netns", "add", inside)
        _ip("-n", self._switch, "link", "add", host, "type", "veth", "peer", "name", "cable", "netns", inside)
        _ip("-n", self._switch, "link", "set", host, "master", "bridge", "up")
        _ip("-n", inside, "addr", "add", f"{self.address(host)}/24", "dev", "cable")
        _ip("-n", inside, "link", "set", "cable", "up")
        _ip("-n", inside, "link", "set", "lo", "up")
