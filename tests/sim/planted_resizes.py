"""Planted bugs of resizes: on brokers, controllers, producers and consumers; see `planted`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch.broker.replication.partition import Partition
from anabranch.clients.consumer import listener, poll_loop
from anabranch.clients.consumer.topic_gates import Gates
from anabranch.clients.producer import accumulator, switch
from anabranch.controller import resize
from tests.sim.planted import Planter, plant


@plant("generation of a batch not checked")
def generation_not_checked(planter: Planter) -> None:
    planter.replace(Partition, "check_generation", lambda partition, batch_generation: None)


@plant("sealed partitions accept records")
def seal_ignored(planter: Planter) -> None:
    def adopt(partition: Any, state: Any, role: Any) -> None:
        generation = partition.generation
        original(partition, state, role)
        if partition.sealed:
            partition.sealed = False
            partition.generation = generation

    original = planter.replace(Partition, "_adopt", adopt)


@plant("a generation is published before its leaders are fenced")
def publish_early(planter: Planter) -> None:
    planter.replace(resize, "all_adopted", lambda state, topic, indices: True)
    planter.replace(resize, "bump_generation", _bumped_without_generation(resize.bump_generation))


def _bumped_without_generation(original: Any) -> Any:
    """The new leader epoch and generation are written, but no leader gets them."""

    def bumped(committed: Any, generation: int, *, sealed: bool, controller_epoch: int) -> Any:
        after = original(committed, generation, sealed=sealed, controller_epoch=controller_epoch)
        return replace(after, leader_epoch=committed.state.leader_epoch)

    return bumped


@plant("gates are always open")
def gates_open(planter: Planter) -> None:
    planter.replace(Gates, "passes", lambda gates, topic, key_epoch, now_s: True)


@plant("boundaries are crossed without a flush")
def no_flush_callback(planter: Planter) -> None:
    async def tell(callback: Any, about: Any) -> None:
        if "maybe_revoked" not in callback.__name__:
            await original(callback, about)

    original = planter.replace(listener, "call_listener", tell)
    planter.replace(poll_loop, "call_listener", tell)


@plant("a producer does not wait at the barrier of a resize")
def no_barrier(planter: Planter) -> None:
    planter.replace(switch, "stale_classes", lambda topic: set())
    planter.replace(switch, "closed_partitions", lambda topic: frozenset())
    for name in ("stale_classes", "closed_partitions"):
        if name in vars(accumulator):
            planter.replace(accumulator, name, getattr(switch, name))
