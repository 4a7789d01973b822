"""Keeps a data directory with the node and the cluster that it belongs to, by the file `meta.properties` in it.

Logs of another node, or of another cluster, would be taken for replicas of this one: their records would be served, and
followers would truncate to them. Source: kafka.server.BrokerMetadataCheckpoint, version 0 of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.config_def import ConfigError

if TYPE_CHECKING:
    from anabranch.broker.storage.files import Files

META_PROPERTIES: Final = "meta.properties"


def claim_directories(files_by_path: Mapping[str, Files], node_id: int, cluster_id: str) -> None:
    """Write into each directory that has no such file yet whose it is. Raises ConfigError if one is not this node's."""
    mine = {"version": "0", "broker.id": str(node_id), "cluster.id": cluster_id}
    for path, files in files_by_path.items():
        content = files.read_file(META_PROPERTIES)
        if content is None:
            files.write_file(META_PROPERTIES, "".join(f"{k}={v}\n" for k, v in mine.items()).encode())
            continue
        found = dict(line.split("=", 1) for line in content.decode().splitlines() if "=" in line)
        for name in ("broker.id", "cluster.id"):
            if found.get(name) != mine[name]:
                raise ConfigError(
                    f"the data in {path} belongs to {name} {found.get(name)}, but this node has {name} "
                    f"{mine[name]}; use another --data-dir, or empty this one if its data is no longer needed"
                )
