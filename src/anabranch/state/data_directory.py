"""Checks the layout of a cluster's data directory at the start.

A cluster in one process keeps `zookeeper.journal` and `broker-N`, a cluster of processes `zookeeper` and `node-N`. The
data of a real ZooKeeper and of the built-in one have different forms. Opened in the other form, a directory would look
empty, so that is refused. If a cluster starts with fewer brokers than
before, the other brokers count as down: their data is kept, and partitions only on them are unreadable.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.broker_settings import ConfigError
from anabranch.clients.connection import Connection
from anabranch.protocol.apis.metadata import MetadataRequest

if TYPE_CHECKING:
    from anabranch.clients.security import Security
    from anabranch.protocol.apis.metadata import MetadataResponse

JOURNAL: Final = "zookeeper.journal"
ZOOKEEPER: Final = "zookeeper"
ZOOKEEPER_DATA: Final = "data"
"""The directory of a ZooKeeper's znodes, below its own."""
BUILT_IN: Final = "built-in"
"""The name of the built-in ZooKeeper."""
LOCAL: Final = "local"
"""The name of a real ZooKeeper on this machine."""
REAL_DATA: Final = "version-2"
"""Where a real ZooKeeper keeps its znodes."""
NAMED_MAX: Final = 3


def refuse_other_form(data_dir: str | Path, *, processes: bool) -> None:
    """Raise ConfigError if the directory holds a cluster of the other form."""
    journal = (Path(data_dir) / JOURNAL).exists()
    nodes = any(Path(data_dir).glob("node-*/meta.properties"))
    if processes and journal:
        raise ConfigError(
            f"{data_dir} belongs to a cluster of one process; start it without --processes, or use another --data-dir"
        )
    if not processes and nodes and not journal:
        raise ConfigError(
            f"{data_dir} belongs to a cluster of processes; start it with --processes, or use another --data-dir"
        )


def refuse_other_zookeeper(zookeeper_dir: str | Path, *, built_in: bool) -> None:
    """Raise ConfigError if the directory of a ZooKeeper holds the data of the other kind."""
    data = Path(zookeeper_dir) / ZOOKEEPER_DATA
    other = data / (REAL_DATA if built_in else JOURNAL)
    if other.exists():
        kind = LOCAL if built_in else BUILT_IN
        raise ConfigError(f"{data} was written with --zookeeper {kind}; use that again, or another --data-dir")


async def node_command_options(host: str, port: int, security: Security | None = None) -> str:
    """One line about topics that need stopped brokers, as a broker reports them; empty if there are none."""
    connection = await Connection.open(host, port, client_id="anabranch-launcher", security=security)
    try:
        metadata = await connection.call(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    finally:
        await connection.close()
    return describe_missing(metadata)


def describe_missing(metadata: MetadataResponse) -> str:
    """The line of `node_command_options`, from a broker's Metadata response."""
    live = {broker.node_id for broker in metadata.brokers}
    missing: set[int] = set()
    unreachable, fewer = [], 0
    for topic in metadata.topics:
        for partition in topic.partitions:
            away = set(partition.replica_nodes) - live
            missing |= away
            if away and partition.leader_id == -1:
                unreachable.append(f"{topic.name}-{partition.partition_index}")
            elif away:
                fewer += 1
    if not missing:
        return ""
    parts = []
    if unreachable:
        parts.append(f"{len(unreachable):,} partitions are unavailable ({_format_partitions(unreachable)})")
    if fewer:
        parts.append(f"{fewer:,} partitions have fewer replicas")
    who = (
        f"broker {min(missing)}" if len(missing) == 1 else f"brokers {_join_words(str(one) for one in sorted(missing))}"
    )
    known = live | missing
    return (
        f"this cluster also has {who}, which {'does' if len(missing) == 1 else 'do'} not run: {' and '.join(parts)}. "
        f"Nothing is deleted: --brokers {max(known) - min(known) + 1} brings everything back"
    )


def _format_partitions(partitions: list[str]) -> str:
    shown = ", ".join(partitions[:NAMED_MAX])
    rest = len(partitions) - NAMED_MAX
    return f"{shown} and {rest:,} more" if rest > 0 else shown


def _join_words(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
