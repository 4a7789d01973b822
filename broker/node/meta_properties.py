"""Verifies with `meta.properties` that a data directory belongs to this node and cluster.

Otherwise a broker would serve the logs of another node or cluster as its own replicas, and followers would truncate to
them. Source: kafka.server.BrokerMetadataCheckpoint, version 0 of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.config_def import ConfigError

if TYPE_CHECKING:
    from anabranch.broker.storage.files import Files

META_PROPERTIES: Final = "meta.properties"


def claim_directories(files_by_path: Mapping[str, Files], node_id: int, cluster_id: str) -> None:
    """Check `meta.properties` in each directory, or write it if absent. Raises ConfigError if it names another node."""
    mine = {"version": "0", "broker.id": str(node_id), "cluster.id": cluster_id}
    for path, files in files_by_path.items():
        content = files.read_file(META_PROPERTIES)
        if content is None:
            files.write_file(META_PROPERTIES, "".join(f"{k}={v}\n" for k, v in mine.items()).encode(), flushed=True)
            continue
        found = dict(line.split("=", 1) for line in content.decode(errors="replace").splitlines() if "=" in line)
        for name in ("broker.id", "cluster.id"):
            if found.get(name) != mine[name]:
                raise ConfigError(
                    f"the data in {path} belongs to {name} {found.get(name)}, but this node has {name} "
                    f"{mine[name]}; use another --data-dir, or empty this one if its data is no longer needed"
                )
