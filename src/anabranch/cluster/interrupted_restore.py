"""Finishes a restore of a cluster of processes, also after its launcher has died in the middle of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from anabranch.state.data_directory import ZOOKEEPER, ZOOKEEPER_DATA

RESTORING: Final = "restoring"
"""The directory with a complete copy of a snapshot, until all its parts are in their places."""
PARTIAL: Final = ".partial"
"""The end of the name of an incomplete copy."""


def finish_restore(directory: Path, zookeeper_data: Path | None = None) -> None:
    """Move the parts of a restore to their places, if its copy is complete; remove an incomplete copy.

    Args:
        directory: The cluster's directory.
        zookeeper_data: The directory of ZooKeeper's data, if not in `directory`.
    """
    shutil.rmtree(directory / f"{RESTORING}{PARTIAL}", ignore_errors=True)
    restoring = directory / RESTORING
    if not restoring.exists():
        return
    for part in sorted(restoring.iterdir()):
        place = directory / part.name
        if part.name == ZOOKEEPER:
            place = zookeeper_data or place / ZOOKEEPER_DATA
        if place.exists():
            shutil.rmtree(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(part, place)
    restoring.rmdir()
