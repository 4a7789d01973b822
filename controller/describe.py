"""Describes the controller as text: one line per broker, topic and partition; and its state tables as diagrams.

    python -m anabranch.controller.describe [FILE]     draw the tables into FILE (docs/controller.md), between two marks

The diagrams are made from the tables that the state machine enforces.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, TypeVar

from anabranch.controller import partitions, replicas, resize
from anabranch.controller.model import Topic, TopicPartition
from anabranch.controller.state import ClusterState
from anabranch.protocol.host_port import format_host_port

Phase = TypeVar("Phase", bound=enum.Enum)

BEGIN: Final = "<!-- drawn by python -m anabranch.controller.describe: begin -->"
END: Final = "<!-- drawn by python -m anabranch.controller.describe: end -->"


def state(cluster: ClusterState) -> str:
    """Describe the controller's whole state in lines."""
    settings = cluster.settings
    lines = [f"controller {settings.node_id} at epoch {cluster.controller_epoch}: {len(cluster.topics)} topics"]
    for broker in sorted(cluster.brokers.values(), key=lambda one: one.id):
        where = ", ".join(format_host_port(one.host, one.port) for one in broker.endpoints)
        stopping = ", stopping" if broker.id in cluster.shutting_down else ""
        lines.append(f"  broker {broker.id} at {where}, epoch {broker.epoch}{stopping}")
    for name in sorted(cluster.topics):
        lines += _topic(cluster, cluster.topics[name])
    return "\n".join(lines)


def _topic(cluster: ClusterState, topic: Topic) -> list[str]:
    body = topic.body
    head = f"  topic {topic.name}: {body.undeleted_partition_count} partitions at generation {body.generation}"
    if body.plan is not None:
        head += f", resizing to {body.plan.after} as generation {body.plan.generation}"
    if body.reassigned:
        head += f", moving {', '.join(f'{index} to {list(body.target(index))}' for index in body.reassigned)}"
    if topic.name in cluster.deleting:
        head += ", being deleted"
    return [head, *(_partition(cluster, topic, partition) for partition in cluster.partitions_of(topic.name))]


def _partition(cluster: ClusterState, topic: Topic, partition: TopicPartition) -> str:
    committed = cluster.partitions.get(partition)
    phase = cluster.phase(partition).value
    if committed is None:
        return f"    {partition.partition}: {phase}"
    known = committed.state
    waits = ""
    if topic.body.plan is not None and known.generation == topic.body.plan.generation:
        waits = "" if resize.is_adopted(cluster, partition, known.generation) else ", waiting for its leader"
    return (
        f"    {partition.partition}: {phase}, leader {known.leader}@{known.leader_epoch}, isr {list(known.isr)}, "
        f"generation {known.generation}{', sealed' if known.sealed else ''}{waits}"
    )


def diagrams() -> str:
    """Both state tables as Mermaid, in Markdown."""
    drawings = (("A partition", diagram(partitions.LEGAL)), ("A replica", diagram(replicas.LEGAL)))
    return "\n\n".join(f"{title}:\n\n```mermaid\n{drawing}\n```" for title, drawing in drawings)


def diagram(table: Mapping[Phase, Collection[Phase]]) -> str:
    """One table: every phase, and every transition that is legal."""
    first = next(iter(table))
    lines = ["stateDiagram-v2", *(f'    state "{phase.value}" as {phase.name}' for phase in table)]
    lines.append(f"    [*] --> {first.name}")
    for before, targets in table.items():
        lines += [f"    {before.name} --> {after.name}" for after in table if after in targets]
    return "\n".join(lines)


def replace_diagrams(text: str) -> str:
    """Replace the diagrams between the marks in the text. ValueError if there are none."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"there is no place for the diagrams: {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{diagrams()}\n\n{END}{after}"


def main(arguments: list[str]) -> int:
    """Draw the diagrams into a file."""
    path = Path(arguments[0] if arguments else "docs/controller.md")
    path.write_text(replace_diagrams(path.read_text()))
    return 0


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
