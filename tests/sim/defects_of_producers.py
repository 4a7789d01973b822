"""Defects of the producer's switch and of clients' generations; see `defects`."""

from __future__ import annotations

from typing import Any

from anabranch.clients import metadata
from anabranch.clients.consumer.gate import TopicGate
from anabranch.clients.producer import drain_order, switch
from anabranch.clients.producer.queues import Batch, PartitionQueue
from tests.sim.defects import defect
from tests.sim.planted import Planter


@defect("K501", "the count of the request is compared, and refused batches are tried again where they were")
def as_published(planter: Planter) -> None:
    """As KIP-253 has it: partitions are chosen once, requests bear what the producer knows when it sends them."""

    def bytes_with(batch: Any, compression: str, **options: Any) -> bytes:
        batch.batch_generation = batch.queue.batch_generation
        return bytes(original(batch, compression, **options))

    original = planter.replace(Batch, "bytes_with", bytes_with)
    planter.replace(switch, "withdraw", lambda queue: None)
    planter.replace(switch, "refusal_is_final", lambda batch, generation: False)
    planter.replace(switch, "closed_partitions", lambda topic: frozenset())


@defect("K503", "a switch leaves the oldest waiting batch where it was")
def not_atomic(planter: Planter) -> None:
    def withdraw(queue: Any) -> None:
        oldest = queue.waiting.popleft() if queue.live and queue.waiting else None
        original(queue)
        if oldest is not None:
            queue.waiting.append(oldest)

    original = planter.replace(switch, "withdraw", withdraw)


@defect("K504", "records of batches with unknown outcomes are sent elsewhere")
def unknown_outcomes(planter: Planter) -> None:
    def withdraw(queue: Any) -> None:
        original(queue)
        for batch in [one for one in queue.unresolved if not one.on_wire]:
            switch.refuse(batch, batch.batch_generation)

    original = planter.replace(switch, "withdraw", withdraw)


@defect(
    "K506",
    "five batches at once to a leader that does not know the producer",
    aim="a leader hears late that it is one",
)
def first_contact(planter: Planter) -> None:
    planter.replace(drain_order, "first_contact", lambda queue: False)

    def established(queue: Any) -> bool:
        return True

    def ignored(queue: Any, value: bool) -> None:
        return

    planter.replace(PartitionQueue, "established", property(established, ignored))


@defect("K507", "older metadata is believed")
def metadata_goes_back(planter: Planter) -> None:
    def merge(answered: Any, name: str, known: Any, lineages: Any) -> Any:
        return original(answered, name, None, {})

    def refresh(gate: Any, lineage: Any, partitions: Any) -> None:
        gate.lineage, gate._partitions = lineage, dict(partitions)

    original = planter.replace(metadata, "_merge", merge)
    planter.replace(switch, "is_newer", lambda generation, known: generation != known)
    planter.replace(TopicGate, "refresh", refresh)


@defect("R8", "returned records are placed behind younger ones")
def behind_younger(planter: Planter) -> None:
    planter.replace(switch, "_age", lambda entry: -entry[0].order)
