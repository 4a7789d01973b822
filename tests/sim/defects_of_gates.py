"""Defects of gates, boundaries and start offsets; see `defects`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

from anabranch.broker.handlers import offset_for_leader_epoch as handler
from anabranch.broker.metadata import metadata_cache
from anabranch.clients.connection import Connection
from anabranch.clients.consumer import poll_loop
from anabranch.clients.consumer.delivery import Deliveries
from anabranch.clients.consumer.gate import TopicGate
from anabranch.clients.consumer.offset_lookup import LATEST, OffsetResets
from anabranch.clients.consumer.ownership import Ownership
from anabranch.clients.consumer.progress import PartitionProgress
from anabranch.clients.consumer.topic_gates import Gates
from anabranch.controller import resize
from anabranch.protocol import linear_hashing
from anabranch.protocol.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.order_gates import UNKNOWN
from tests.sim.defects import defect
from tests.sim.loop import PROCESS
from tests.sim.planted import Planter

BEHIND: Final = "an application takes its time over the end of a key epoch"
"""Gates matter to members that are behind: when a group rebalances after a resize, all that was read is committed."""


def _group() -> tuple[int, str]:
    process = PROCESS.get()
    return id(asyncio.get_running_loop()), "" if process is None else process.host.partition("-")[0]


@defect(
    "K602, K609",
    "gates open on positions, not on commits",
    aim=BEHIND,
)
def positions(planter: Planter) -> None:
    reached: dict[Any, int] = {}

    def take(progress: Any, limit: int, generation: int = -1) -> Any:
        records = original_take(progress, limit, generation)
        reached[_group(), progress.partition] = progress.position
        return records

    def passes(gates: Any, topic: str, key_epoch: Any, now_s: float) -> bool:
        gate = gates._gates[topic]
        for one in gate._partitions:
            told = reached.get((_group(), (topic, one)), -1)
            if told > gate.committed(one):
                gate.note_committed(one, told)
        return bool(original_passes(gates, topic, key_epoch, now_s))

    original_take = planter.replace(PartitionProgress, "take", take)
    original_passes = planter.replace(Gates, "passes", passes)


@defect(
    "K601, K707",
    "a gate looks at the key epochs just before, not beyond",
    aim="keys pass through a partition that nobody wrote to, and readers are behind",
)
def not_recursive(planter: Planter) -> None:
    planter.replace(Lineage, "sources", Lineage.predecessors)


@defect("K607", "a gate is asked only at the start of a partition", aim=BEHIND)
def only_at_the_start(planter: Planter) -> None:
    def passes(gates: Any, topic: str, key_epoch: Any, now_s: float) -> bool:
        if gates._gates[topic].lineage.previous(key_epoch) is not None:
            return True
        return bool(original(gates, topic, key_epoch, now_s))

    original = planter.replace(Gates, "passes", passes)


@defect("K111", "a gate opens when any of its parents is done", aim=BEHIND)
def any_parent(planter: Planter) -> None:
    def is_open(gate: Any, key_epoch: Any) -> bool:
        waits = gate.waits(key_epoch)
        return not waits or len(waits) < len(gate.lineage.predecessors(key_epoch))

    planter.replace(TopicGate, "is_open", is_open)


@defect("K106", "the end of a key epoch is taken for its last record")
def inclusive(planter: Planter) -> None:
    def note_end(gate: Any, key_epoch: Any, end_offset: int, *, leader_epoch: int) -> None:
        original(gate, key_epoch, max(end_offset - 1, min(end_offset, 0)), leader_epoch=leader_epoch)

    original = planter.replace(TopicGate, "note_end", note_end)


@defect("K406", "the high watermark is taken for the end of a key epoch")
def high_watermark(planter: Planter) -> None:
    def end_of_epoch(ctx: Any, topic: str, requested: Any, *, consumer: bool = True) -> Any:
        answer = original(ctx, topic, requested, consumer=consumer)
        partition = ctx.services.replicas.leader_of(topic, requested.partition)
        if answer.end_offset > partition.high_watermark:
            answer.end_offset = partition.high_watermark
        return answer

    original = planter.replace(handler, "end_of_epoch", end_of_epoch)


@defect("K407", "a leader that has not adopted the cut says where a key epoch ends")
def not_adopted(planter: Planter) -> None:
    """Requests have no leader epoch, and gates ask as soon as a plan exists, which is immediate here."""

    def send(connection: Any, request: Any, **options: Any) -> Any:
        if isinstance(request, OffsetForLeaderEpochRequest) and request.replica_id == -1:
            for topic in request.topics:
                for row in topic.partitions:
                    row.current_leader_epoch = -1
        return original(connection, request, **options)

    original = planter.replace(Connection, "send", send)
    planter.replace(resize, "all_adopted", lambda state, topic, indices: True)
    planter.replace(metadata_cache, "visible", lambda partition, topic_generation: partition)


@defect(
    "K409",
    "the end of a key epoch is kept when its partition gets another leader",
    aim="who told an end dies with records before it that nobody else has",
)
def kept_ends(planter: Planter) -> None:
    planter.replace(TopicGate, "end", lambda gate, key_epoch: gate._ends.get(key_epoch, (UNKNOWN, UNKNOWN))[0])


@defect("K408", "an unknown end is taken for the start")
def unknown_is_zero(planter: Planter) -> None:
    def waits(gate: Any, key_epoch: Any) -> Any:
        return tuple(wait for wait in original(gate, key_epoch) if wait.end >= 0)

    original = planter.replace(TopicGate, "waits", waits)


@defect("K606", "the end of a key epoch is committed only at the end of the log")
def report_at_the_end(planter: Planter) -> None:
    def boundaries(deliveries: Any, **options: Any) -> Any:
        return [one for one in original(deliveries, **options) if not one.progress.buffered]

    original = planter.replace(Deliveries, "boundaries", boundaries)


@defect("K201, K302", "a child waits for a sibling that the same resize makes")
def sibling(planter: Planter) -> None:
    def predecessors(lineage: Any, key_epoch: Any) -> Any:
        before, after = lineage._counts_around(key_epoch.generation)
        if before is not None and before < after and key_epoch.partition >= before:
            parent = linear_hashing.ancestor(key_epoch.partition, key_epoch.partition, lineage.base)
            if parent >= before:
                return (KeyEpoch(parent, key_epoch.generation),)
        return original(lineage, key_epoch)

    original = planter.replace(Lineage, "predecessors", predecessors)


@defect("R20, K611", "a new partition is read from where it ends when it is found")
def latest(planter: Planter) -> None:
    def timestamp(resets: Any, network: Any, partition: Any, resumed: Any) -> int:
        topic = network.metadata.topics.get(partition.topic)
        if topic is not None and topic.lineage is not None:
            created = topic.lineage.class_generations(partition.partition)
            if created and created[0] > topic.lineage.history[0][0]:
                return LATEST
        return int(original(resets, network, partition, resumed))

    original = planter.replace(OffsetResets, "_timestamp", timestamp)


@defect("K204", "consumers compare counts, not generations")
def counts_of_consumers(planter: Planter) -> None:
    """Who sleeps through 4, 8, 4 sees nothing new: the records of both times are one key epoch to it."""

    def refresh(gate: Any, lineage: Any, partitions: Any) -> None:
        if lineage.count == gate.lineage.count:
            known = {generation for generation, _ in gate.lineage.history}
            partitions = {
                index: replace(view, gen_start=tuple(row for row in view.gen_start if row[0] in known))
                for index, view in partitions.items()
            }
            lineage = gate.lineage
        original(gate, lineage, partitions)

    def shapes(ownership: Any) -> Any:
        found = original_shapes(ownership)
        topics = ownership.metadata.topics
        return {name: shape._replace(generation=len(topics[name].live)) for name, shape in found.items()}

    original = planter.replace(TopicGate, "refresh", refresh)
    original_shapes = planter.replace(Ownership, "_shapes", shapes)


@defect("I5", "nobody is told that keys have arrived")
def not_told(planter: Planter) -> None:
    async def tell(callback: Any, about: Any) -> None:
        if "key_assigned" not in callback.__name__:
            await original(callback, about)

    original = planter.replace(poll_loop, "call_listener", tell)
