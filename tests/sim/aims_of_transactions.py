"""Aims at transactions: coordinators that sleep or die, late requests, records that are given up; see `aims`."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from protocol.internal_topics import TRANSACTION_STATE_TOPIC
from tests.sim.aims import aim
from tests.sim.copiers import OUT
from tests.sim.history import Transaction

COORDINATED: Final = (TRANSACTION_STATE_TOPIC, 0)
COPYING: Final = {"copiers": 1, "readers": 1, "counts": [3], "keys": 8, "spares": 1, "fault_s": 8.0, "pace_s": 0.4}
"""The copiers and little else."""


def _coordinator(schedule: Any) -> int:
    """Who coordinates all transactions; 0 if nobody can be asked."""
    node: int = schedule.cluster.leader(*COORDINATED)
    return node if node > 0 and schedule.cluster.machines[node].up else 0


async def _within(schedule: Any, limit_s: float, condition: Any) -> bool:
    deadline = schedule.cluster.now() + limit_s
    while not condition():
        if schedule.cluster.now() >= deadline:
            return False
        await asyncio.sleep(0.002)
    return True


async def _next_transaction(schedule: Any, state: str) -> Transaction | None:
    """One that is to be committed from now on (`wished`), or that records are written in (`open`)."""
    rows: list[Transaction] = schedule.cluster.history.transactions
    known = sum(one.wish != "" for one in rows) if state == "wished" else len(rows)

    def news() -> bool:
        return (sum(one.wish != "" for one in rows) if state == "wished" else len(rows)) > known

    if not await _within(schedule, 3, news):
        return None
    return next((one for one in reversed(rows) if one.outcome == "info" and (state == "open" or one.wish)), None)


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


@aim("an EndTxn is late", {**COPYING, "copies": [2], "aborts": 0.4})
async def end_is_late(schedule: Any) -> bool:
    """It arrives when its producer has asked again on another connection, and is in the middle of the next one."""
    cluster = schedule.cluster
    row, node = await _next_transaction(schedule, "wished"), _coordinator(schedule)
    if row is None or not node:
        return False
    stalled = cluster.network.stall(row.transactional_id, cluster.machines[node].host)
    await asyncio.sleep(1.6 + 1.2 * schedule.rng.random())
    await _next_transaction(schedule, "open")
    await asyncio.sleep(0.1 * schedule.rng.random())
    return bool(cluster.network.release(stalled))


@aim("a coordinator dies with what nobody else has", {**COPYING, "copies": [2], "aborts": 0.1})
async def coordinator_dies(schedule: Any) -> bool:
    """What it has told nobody but its own log is gone with it, and what it has promised must not be."""
    cluster = schedule.cluster
    row, node = await _next_transaction(schedule, "wished"), _coordinator(schedule)
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
