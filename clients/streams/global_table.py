"""A global table of a topology: every instance has all of its rows, whatever its tasks are.

`Stream.join_global` looks rows up in it. `global_store` keeps the rows, and `global_state_manager` reads them. Pure;
source: GlobalKTable of Kafka Streams.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.clients.streams.topology_graph import Node
from anabranch.protocol.suggestion import suggest_arguments


@suggest_arguments
@dataclass(frozen=True, slots=True, eq=False)
class GlobalTable:
    """A topic as a table of the latest value of each key, whole on every instance; `Topology.global_table` makes it."""

    store: str
    """The name of the store, as for queries and `Context.global_store`."""
    source: Node
    """The topic, and how values are decoded."""
