"""Aims at transactions: frozen or dead coordinators, late requests, dropped records; see `aims`."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from anabranch.broker.coordinators.transactions.transactional_id import ONGOING, PREPARED
from anabranch.chaos.transaction_events import Transaction
from anabranch.protocol.apis.end_txn import EndTxnRequest
from anabranch.protocol.apis.write_txn_markers import WriteTxnMarkersRequest
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.internal_topics import TRANSACTION_STATE_TOPIC
from anabranch.protocol.registry import api_of
from tests.sim.aims import aim
from tests.sim.connections import RESET
from tests.sim.copiers import OUT

COORDINATED: Final = (TRANSACTION_STATE_TOPIC, 0)
COPYING: Final = {"copiers": 1, "readers": 1, "counts": [3], "keys": 8, "spares": 1, "fault_s": 8.0, "pace_s": 0.4}
"""The copiers and little else."""


def _coordinator(schedule: Any) -> int:
    node: int = schedule.cluster.leader(*COORDINATED)
    return node if node > 0 and schedule.cluster.machines[node].up else 0


async def _within(schedule: Any, limit_s: float, condition: Any) -> bool:
    deadline = schedule.cluster.now() + limit_s
    while not condition():
        if schedule.cluster.now() >= deadline:
            return False
        await asyncio.sleep(0.002)
    return True


def _transaction(schedule: Any, node: int, transactional_id: str) -> Any:
    running = schedule.cluster.machines[node].node
    coordinator = running.services.broker.transactions.built if schedule.cluster.machines[node].up else None
    if coordinator is None:
        return None
    try:
        shard = coordinator._leadership.shard_of(transactional_id)
    except KafkaError:
        return None
    return shard.transactions.get(transactional_id)


def _epoch_of_open(schedule: Any, node: int, transactional_id: str) -> int:
    found = _transaction(schedule, node, transactional_id)
    undecided = found is not None and found.state is ONGOING and found.pending is None
    return found.producer_epoch if undecided else -1


async def _next_to_end(schedule: Any) -> Transaction | None:
    rows: list[Transaction] = schedule.cluster.history.transactions

    def wishes() -> int:
        return sum(one.requested_end != "" for one in rows)

    known = wishes()
    if not await _within(schedule, 3, lambda: wishes() > known):
        return None
    return next((one for one in reversed(rows) if one.outcome == "info" and one.requested_end), None)


@aim("a coordinator sleeps over its successor", {**COPYING, "copiers": 2, "copies": [2], "aborts": 0.2})
async def coordinator_sleeps(schedule: Any) -> bool:
    """It has decided a transaction, wakes up when the next one is under way, and sends the markers of the first."""
    cluster, node = schedule.cluster, _coordinator(schedule)
    if not node:
        return False
    machine = cluster.machines[node]
    machine.failpoint = schedule.rng.choice(("txn:after-prepare", "txn:after-some-markers"))
    machine.at_failpoint = "frozen"
    slept = await _within(schedule, 2, lambda: not machine.failpoint)
    machine.failpoint = ""
    if slept:
        await asyncio.sleep(3.5)
    return slept


@aim("an EndTxn is late", {**COPYING, "copies": [2], "aborts": 0.0})
async def end_is_late(schedule: Any) -> bool:
    """It arrives when its producer has asked again on another connection, and is in the middle of the next one.

    It has come about when the coordinator gets it while that is open, and has the time to take it up.
    """
    cluster, rng, node = schedule.cluster, schedule.rng, _coordinator(schedule)
    if not node:
        return False
    copier, host = schedule.copiers[0], cluster.machines[node].host
    snared = cluster.network.snare(copier.host, host, api_of(EndTxnRequest).key)
    if not await _within(schedule, 3, lambda: bool(snared)):
        cluster.network.unsnare(copier.host, host)
        return False
    (pipe,) = snared
    epoch = _epoch_of_open(schedule, node, copier.name)

    def in_the_next() -> bool:
        return _epoch_of_open(schedule, node, copier.name) > epoch >= 0

    await _within(schedule, 5, in_the_next)
    await asyncio.sleep(0.02 * rng.random())
    met = await _within(schedule, 2, in_the_next)
    cluster.network.release(pipe, ends_after_s=0.05)
    arrived = await _within(schedule, 0.05, lambda: all(item is RESET for _, item, _ in pipe.queue))
    return met and arrived and not pipe.target.closing


@aim("requests meet a pending transition", {**COPYING, "copies": [3], "aborts": 0.3})
async def pending_is_met(schedule: Any) -> bool:
    """The marker for one partition is delayed: the next transaction of the producer meets that, and its successor.

    It has come about when the transition is pending before the successor starts and still when it must have asked.
    """
    cluster, rng, node = schedule.cluster, schedule.rng, _coordinator(schedule)
    copier = schedule.copiers[0]
    leaders = {state.leader for place, state in cluster.states() if place[0] == OUT} - {node, -1, 0}
    if not node or not leaders or not copier.alive:
        return False
    link = cluster.machines[node].host, cluster.machines[rng.choice(sorted(leaders))].host
    snared = cluster.network.snare(*link, api_of(WriteTxnMarkersRequest).key)

    def pending() -> bool:
        found = _transaction(schedule, node, copier.name)
        return found is not None and found.state in PREPARED and found.pending is not None

    if not await _within(schedule, 4, lambda: bool(snared) and pending()):
        cluster.network.unsnare(*link)
        return False
    cluster.tell(f"{copier.identity} is replaced while its transaction is being completed")
    copier.replace()
    await asyncio.sleep(0.3 + 0.5 * rng.random())
    met = pending()
    cluster.network.release(snared[0], ends_after_s=60)
    return met


@aim("a coordinator dies with what nobody else has", {**COPYING, "copies": [2], "aborts": 0.1})
async def coordinator_dies(schedule: Any) -> bool:
    """Unreplicated state is lost with it; promises must not be."""
    cluster = schedule.cluster
    row, node = await _next_to_end(schedule), _coordinator(schedule)
    if row is None or not node:
        return False
    host = cluster.machines[node].host
    followers = [one.host for one in cluster.brokers if one.node_id != node]
    for follower in followers:
        cluster.network.block(host, follower)
    await _within(schedule, 0.5, lambda: row.outcome != "info")
    cluster.tell(f"kill node {node}, which coordinates transactions, and whose followers lag")
    cluster.crash(node)
    cluster.expire_session(node)
    for follower in followers:
        cluster.network.heal(host, follower)
    await asyncio.sleep(0.5 + 2 * schedule.rng.random())
    cluster.boot(node)
    return True


@aim(
    "a copier's records cannot be stored in time",
    {**COPYING, "copies": [3], "aborts": 0.0, "delivery_timeout_ms": 2000},
)
async def records_given_up(schedule: Any) -> bool:
    """It reaches its coordinators, and not the leader of one partition."""
    cluster, rng = schedule.cluster, schedule.rng
    leaders = {state.leader for place, state in cluster.states() if place[0] == OUT and state.leader > 0}
    leaders -= {state.leader for place, state in cluster.states() if place[0].startswith("__")}
    if not leaders:
        return False
    host, copier = cluster.machines[rng.choice(sorted(leaders))].host, rng.choice(schedule.copiers)
    for source, target in ((host, copier.host), (copier.host, host)):
        cluster.network.block(source, target)
    await asyncio.sleep(2.2 + 1.2 * rng.random())
    for source, target in ((host, copier.host), (copier.host, host)):
        cluster.network.heal(source, target)
    return True
