"""The controller's beliefs as text: one line per broker, topic and partition."""

from __future__ import annotations

from controller import resize
from controller.model import Topic, TopicPartition
from controller.state import ClusterState


def state(cluster: ClusterState) -> str:
    """Everything."""
    settings = cluster.settings
    lines = [f"controller {settings.node_id} at epoch {cluster.controller_epoch}: {len(cluster.topics)} topics"]
    for broker in sorted(cluster.brokers.values(), key=lambda one: one.id):
        where = ", ".join(f"{one.host}:{one.port}" for one in broker.endpoints)
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
        waits = "" if resize.adopted(cluster, partition, known.generation) else ", waiting for its leader"
    return (
        f"    {partition.partition}: {phase}, leader {known.leader}@{known.leader_epoch}, isr {list(known.isr)}, "
        f"generation {known.generation}{', sealed' if known.sealed else ''}{waits}"
    )
