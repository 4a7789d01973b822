"""Finds the node processes of a cluster on this machine by their command lines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")


@dataclass(frozen=True)
class NodeProcessFound:
    """A node's process."""

    node_id: int
    pid: int


def node_processes(directory: Path) -> list[NodeProcessFound]:
    """Return the node processes whose data lie in a launcher's directory."""
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_text(errors="replace").split("\0")[:-1]
        except OSError:
            continue  # it has ended meanwhile, or belongs to another user
        if "node" in words and option(words, "--data-dir").startswith(f"{directory}/"):
            found.append(NodeProcessFound(int(option(words, "--id")), int(entry.name)))
    return found


def option(words: list[str], name: str) -> str:
    """Return the value of an option; empty if it is missing."""
    return words[words.index(name) + 1] if name in words[:-1] else ""
