"""Aims at newly elected leaders; see `aims`."""

from __future__ import annotations

import contextlib
from typing import Any

from anabranch import Consumer
from anabranch.protocol.topic_partition import TopicPartition
from tests.sim.aims import aim, calm
from tests.sim.aims_of_disks import BUSY, within
from tests.sim.clients import CLIENT_FAILURES, TOPIC
from tests.sim.loop import Process


@aim("a leader is asked for its end as soon as it is elected", {**BUSY, "writers": 8, "flushes": False, "brokers": 3})
async def asked_for_its_end(schedule: Any) -> bool:
    """It has all acknowledged records but not the high watermark; the other follower cannot provide it."""
    cluster, place = schedule.cluster, (TOPIC, 0)
    node = cluster.leader(*place)
    if not calm(cluster) or node <= 0:
        return False
    if node == cluster.active_controller():
        cluster.expire_session(node)
        return False
    heir, other = [one for one in cluster.assignments()[place] if one != node]
    link = (cluster.machines[other].host, cluster.machines[heir].host)

    def heir_knows_less() -> bool:
        ends = [one.offset + 1 for one in cluster.history.sends if one.outcome == "ok" and one.place == place]
        replica = cluster.replica(heir, *place)
        return replica is not None and replica.high_watermark < max(ends, default=0) <= replica.log.log_end_offset

    behind = await within(schedule, 3, heir_knows_less)
    cluster.tell(f"kill node {node}; {link[0]} cannot reach {link[1]}")
    cluster.network.block(*link)
    cluster.crash(node)
    cluster.expire_session(node)
    elected = await within(schedule, 3, lambda: cluster.leader(*place) == heir)
    known = len(cluster.history.reported_ends)
    asking = cluster.loop.spawn(Process(f"asker-{known}", "asker"), _ask(schedule))
    ignorant = elected and heir_knows_less()
    await within(schedule, 2, asking.done)
    cluster.network.heal(*link)
    cluster.boot(node)
    told = await within(schedule, 6, lambda: asking.done() and len(cluster.history.reported_ends) > known)
    await within(schedule, 10, lambda: calm(cluster))
    return behind and ignorant and told


async def _ask(schedule: Any) -> None:
    cluster = schedule.cluster
    rng = cluster.rng(f"asker-{cluster.now()}")
    consumer = Consumer(TOPIC, bootstrap_servers=cluster.bootstrap, request_timeout_ms=4000, rng=rng)
    with contextlib.suppress(*CLIENT_FAILURES):
        await consumer.start()
        await consumer.end_offsets([TopicPartition(TOPIC, 0)])
    with contextlib.suppress(*CLIENT_FAILURES):
        await consumer.stop()
