"""Planted bugs about what a change leaves behind at nodes that did not hear of it; see `planted`.

Review found them in this product. No schedule had: no checker looked for what they leave, and responses of ZooKeeper
were lost in one schedule of a hundred.
"""

from __future__ import annotations

from typing import Any

from tests.sim.planted import Planter, plant


@plant(
    "found: a replica that was moved away stays without a StopReplica",
    aim="a replica is moved away while its broker has no session",
)
def moved_replica_stays(planter: Planter) -> None:
    from anabranch.broker.handlers import update_metadata

    def is_obsolete(partition: Any, image: Any, broker_id: int) -> bool:
        topic = image.topics.get(partition.topic)
        moved = topic is not None and topic.topic_id == partition.topic_id and partition.index in topic.reported
        return not moved and original(partition, image, broker_id)

    original = planter.replace(update_metadata, "is_obsolete", is_obsolete)


@plant(
    "found: a replica of a removed partition stays without a StopReplica",
    aim="a partition is removed while a broker of it has no session",
)
def removed_replica_stays(planter: Planter) -> None:
    from anabranch.broker.handlers import update_metadata

    def is_obsolete(partition: Any, image: Any, broker_id: int) -> bool:
        topic = image.topics.get(partition.topic)
        removed = topic is not None and topic.topic_id == partition.topic_id and partition.index not in topic.reported
        return not removed and original(partition, image, broker_id)

    original = planter.replace(update_metadata, "is_obsolete", is_obsolete)


@plant(
    "found: a replica of a removed partition stays if it never heard of the merge",
    aim="a partition is removed while a broker of it has no session",
)
def unsealed_replica_stays(planter: Planter) -> None:
    from anabranch.broker.handlers import update_metadata

    def is_obsolete(partition: Any, image: Any, broker_id: int) -> bool:
        topic = image.topics.get(partition.topic)
        removed = topic is not None and topic.topic_id == partition.topic_id and partition.index not in topic.reported
        return (partition.sealed or not removed) and original(partition, image, broker_id)

    original = planter.replace(update_metadata, "is_obsolete", is_obsolete)


@plant(
    "found: a deletion whose response was lost deletes the next topic of the name",
    aim="a topic is replaced while responses of ZooKeeper are lost",
)
def deletion_repeated(planter: Planter) -> None:
    import contextlib

    from anabranch.broker.handlers import delete_topics
    from anabranch.controller.candidacy import retry_connection_loss
    from anabranch.controller.zk import paths
    from anabranch.controller.zk.session import NodeExists
    from anabranch.protocol.errors import ErrorCode, KafkaError
    from anabranch.protocol.wire import ZERO_UUID

    async def delete_topic(session: Any, name: str, topic_id: bytes = ZERO_UUID) -> None:
        if await retry_connection_loss(lambda: session.exists(paths.topic(name))) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        with contextlib.suppress(NodeExists):
            await retry_connection_loss(lambda: session.create(paths.delete_topic(name), make_parents=True))

    planter.replace(delete_topics, "delete_topic", delete_topic)


@plant(
    "found: a removal whose response was lost removes the next topic of the name",
    aim="a topic is replaced while responses of ZooKeeper are lost",
)
def removal_repeated(planter: Planter) -> None:
    from anabranch.controller.znode_writer import ZnodeWriter

    async def naming(writer: Any, name: str, czxid: int | None) -> Any:
        return await original(writer, name, (await writer._reader.czxids([f"/brokers/topics/{name}"]))[0])

    original = planter.replace(ZnodeWriter, "_naming", naming)
