"""Finds the processes of a running cluster on this machine by their command lines.

`anabranch node --id 2 --zookeeper HOSTS ...` has its id on its command line; the ensemble tells several clusters apart.
Signals go only to a pid.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")


class NotFound(LookupError):
    """No process, or more than one, matches the description."""


@dataclass(frozen=True)
class FoundNode:
    """A node's process."""

    node_id: int
    pid: int
    zookeeper: str
    arguments: tuple[str, ...]

    @property
    def data_dir(self) -> str:
        """The node's data directory; empty for a node without one."""
        return option(self.arguments, "--data-dir")

    @property
    def directory(self) -> str:
        """The launcher's directory of its data and log; empty for a node that was started without a launcher."""
        if self.data_dir:
            return str(self._absolute.parent)
        try:
            log = (PROC / str(self.pid) / "fd" / "2").readlink()
        except OSError:
            return ""
        return str(log.parent) if log.suffix == ".log" else ""

    def belongs_to(self, cluster: str) -> bool:
        """Whether the node belongs to a cluster: by its ensemble or directory, or without a description."""
        if cluster in ("", self.zookeeper):
            return True
        return bool(self.directory) and Path(cluster).resolve() == Path(self.directory).resolve()

    @property
    def inside(self) -> Path:
        """Its data directory as the process sees it, in its own mount namespace."""
        return PROC / str(self.pid) / "root" / self._absolute.relative_to("/")

    @property
    def _absolute(self) -> Path:
        where = Path(self.data_dir)
        return where if where.is_absolute() else (PROC / str(self.pid) / "cwd").readlink() / where


def option(arguments: tuple[str, ...], name: str) -> str:
    """Return the value of an option; empty if it is missing."""
    for place, word in enumerate(arguments):
        if word == name and place + 1 < len(arguments):
            return arguments[place + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return ""


def running_nodes() -> list[FoundNode]:
    """Return every node process of this user's clusters."""
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid != os.getuid():
                continue
            words = tuple((entry / "cmdline").read_text(errors="replace").split("\0")[:-1])
        except OSError:
            continue  # it ended meanwhile, or belongs to another user
        node_id = option(words, "--id")
        is_node = "node" in words and any("anabranch" in Path(word).name for word in words[:5])
        if is_node and node_id.isdigit():
            found.append(FoundNode(int(node_id), int(entry.name), option(words, "--zookeeper"), words))
    return sorted(found, key=lambda one: (one.zookeeper, one.node_id))


def find_node(node_id: int, *, cluster: str = "") -> FoundNode:
    """Return the process of a node. Raises `NotFound` with the running nodes."""
    nodes = running_nodes()
    fitting = [one for one in nodes if one.node_id == node_id and one.belongs_to(cluster)]
    if len(fitting) == 1:
        return fitting[0]
    there = "".join(f"\n  {one}: nodes {', '.join(map(str, ids))}" for one, ids in clusters(nodes).items())
    if fitting:
        raise NotFound(f"several running nodes have id {node_id}; name one cluster with --cluster:{there}")
    where = f" in {cluster}" if cluster else ""
    raise NotFound(f"no running node{where} has id {node_id}; running are:{there or ' none'}")


def clusters(nodes: Sequence[FoundNode]) -> dict[str, list[int]]:
    """Return cluster name -> the ids of its nodes."""
    found: dict[str, list[int]] = {}
    for one in nodes:
        found.setdefault(one.directory or one.zookeeper, []).append(one.node_id)
    return found


def send(pid: int, what: signal.Signals) -> None:
    """Signal one process."""
    os.kill(pid, what)
