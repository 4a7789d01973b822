"""Defects of leaders and of brokers' metadata; see `defects`."""

from __future__ import annotations

from typing import Any

from anabranch.broker.handlers import write_txn_markers
from anabranch.broker.metadata import metadata_cache
from anabranch.broker.replication.legacy_producers import LegacyProducers
from anabranch.broker.replication.partition import Partition
from anabranch.broker.replication.replica_manager import ReplicaManager
from anabranch.broker.replication.topics_with_generations import TopicsWithGenerations
from anabranch.clients.producer import switch
from anabranch.controller import resize
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.sim.defects import defect
from tests.sim.planted import Planter


@defect("K403", "duplicates are looked for after the generation is checked")
def duplicates_last(planter: Planter) -> None:
    def append_local(manager: Any, partition: Any, records: Any, *, generation: int | None, **options: Any) -> Any:
        if generation is not None:
            manager.check_generation(partition, generation, options.get("fit"))
        return original(manager, partition, records, generation=generation, **options)

    original = planter.replace(ReplicaManager, "append_local", append_local)


@defect("K307, K401", "the generation is the topic's, not the partition's")
def generation_of_the_topic(planter: Planter) -> None:
    """As KIP-253 has it: a LeaderAndIsr for one partition changes what a broker demands for all of them."""

    def apply_state(manager: Any, topic: str, topic_id: bytes, state: Any, **more: Any) -> Any:
        code = original(manager, topic, topic_id, state, **more)
        own = [one for (name, _), one in manager._partitions.items() if name == topic]
        newest = max((one.generation for one in own), default=0)
        for one in own:
            one.generation = newest
        return code

    original = planter.replace(ReplicaManager, "apply_state", apply_state)


@defect("K204", "leaders compare counts, not generations")
def counts_of_leaders(planter: Planter) -> None:
    """4, 8, 4: what was partitioned for the first 4 is accepted at the second; producers do not notice, either."""
    counts: dict[tuple[bytes, int], int] = {}

    def planned(body: Any, count: int, added: Any) -> Any:
        after = original_planned(body, count, added)
        for generation, one in body.history:
            counts[body.topic_id, generation] = one
        counts[body.topic_id, after.plan.generation] = count
        return after

    def check_generation(partition: Any, batch_generation: int) -> None:
        known = counts.get((partition.topic_id, batch_generation))
        if (
            not partition.sealed
            and known is not None
            and known == counts.get((partition.topic_id, partition.generation))
        ):
            return
        original(partition, batch_generation)

    def has_changed(topic: Any, topic_id: bytes, lineage: Any, live: Any) -> bool:
        return topic.topic_id != topic_id or topic.live != tuple(live)

    original_planned = planter.replace(resize, "add_plan", planned)
    original = planter.replace(Partition, "check_generation", check_generation)
    planter.replace(switch, "_has_changed", has_changed)
    planter.replace(switch, "closed_partitions", lambda topic: frozenset())


@defect("R12", "new leader epochs are shown before their generation")
def shown_too_early(planter: Planter) -> None:
    planter.replace(metadata_cache, "visible", lambda partition, topic_generation: partition)


@defect("R6, K512", "sealed partitions refuse the ends of transactions")
def markers_refused(planter: Planter) -> None:
    def append(replicas: Any, partition: Any, content: bytes, **options: Any) -> Any:
        if replicas.leader_of(*partition).sealed:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "sealed")
        return original(replicas, partition, content, **options)

    original = planter.replace(write_txn_markers, "append", append)


@defect(
    "K701, R14",
    "a replica keeps its old log when its index is used again",
    aim="a replica sleeps over a removal and the next life of its index",
)
def old_log_kept(planter: Planter) -> None:
    def stop_replica(manager: Any, topic: str, index: int, leader_epoch: int, *, delete: bool) -> Any:
        return original(manager, topic, index, leader_epoch, delete=False)

    original = planter.replace(ReplicaManager, "stop_replica", stop_replica)
    planter.replace(Partition, "start_over_at", lambda partition, offset: None)


@defect("R16", "a topic is marked as ordered after its first batch with a generation is in")
def marked_late(planter: Planter) -> None:
    async def write(topics: Any, partitions: Any, timeout_ms: int) -> None:
        for partition in partitions:
            topics._ask(partition)
        topics._wakeup.set()

    def check_generation(partition: Any, batch_generation: int) -> None:
        marked, partition.has_generations = partition.has_generations, True
        try:
            original(partition, batch_generation)
        finally:
            partition.has_generations = marked

    planter.replace(TopicsWithGenerations, "write", write)
    original = planter.replace(Partition, "check_generation", check_generation)


@defect("R16", "an ordered topic accepts a producer that sends no generation")
def outsiders_let_in(planter: Planter) -> None:
    def check(legacy: Any, partition: Any, fit: Any) -> None:
        if partition.sealed or legacy._topic_config(partition.topic).reshard_legacy_producers == "verify":
            original(legacy, partition, fit)

    original = planter.replace(LegacyProducers, "check", check)
