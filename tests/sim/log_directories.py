"""Replicas move between the log directories of a broker (KIP-113), in schedules whose brokers have two.

The chore asks one broker to move one replica, and waits until its log is there: meanwhile the replica leads or follows,
is cut, resized away or deleted, and its broker dies. The checkers judge the log afterwards like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from anabranch import Admin
from anabranch.broker.replication import log_moves
from anabranch.protocol.topic_partition import TopicPartition
from tests.sim.chores import Caretaker
from tests.sim.cluster import SimCluster
from tests.sim.history import Place

CHORE: Final = "move a replica to another log directory"
DIRECTORIES: Final = ("/data-1", "/data-2")
MOVED_WITHIN_S: Final = 2.0
STEP_BYTES: Final = 600
"""A few batches: in one step of the product's size the logs here would be copied whole."""


@contextlib.contextmanager
def short_steps() -> Iterator[None]:
    """Copy a log in several steps, so that appends, truncations and faults come between them."""
    original = log_moves.STEP_BYTES
    log_moves.STEP_BYTES = STEP_BYTES  # type: ignore[misc]
    try:
        yield
    finally:
        log_moves.STEP_BYTES = original  # type: ignore[misc]


async def move_between_directories(caretaker: Caretaker, *topics: str) -> bool:
    """Of these topics or any, and any broker that hosts it; whether it got there."""
    cluster, rng = caretaker.cluster, caretaker.rng
    place = caretaker.some_partition(*topics)
    if place is None:
        return False
    broker = rng.choice(cluster.assignments()[place])
    now = directory_of(cluster, broker, place)
    target = next((one for one in DIRECTORIES if one != now), "")
    if not now:
        return False

    async def move(admin: Admin) -> None:
        outcomes = await admin.alter_replica_log_dirs(broker, {TopicPartition(*place): target})
        for refusal in outcomes.values():
            if refusal is not None:
                raise refusal

    asked = await caretaker.ask(f"move {place} of broker {broker} from {now} to {target}", move)
    deadline = cluster.now() + MOVED_WITHIN_S
    while asked and directory_of(cluster, broker, place) != target:
        if cluster.now() >= deadline:
            return False
        await asyncio.sleep(0.02)
    return asked


def directory_of(cluster: SimCluster, broker: int, place: Place) -> str:
    """Where a live broker has the log of a partition; empty if it has none."""
    replica, node = cluster.replica(broker, *place), cluster.machines[broker].node
    if replica is None or node is None:
        return ""
    return node.services.replicas.logs.home(place).path
