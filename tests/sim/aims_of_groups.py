"""Aims at members that are replaced while they are frozen, and resume; see `aims`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Final

from anabranch import Admin, TopicPartition
from anabranch.chaos.checkers.invariants import LIVENESS
from anabranch.clients.consumer.classic_group_membership import ClassicMembership
from anabranch.clients.group_offsets import commit_request
from anabranch.protocol.apis.fetch import FetchRequest
from anabranch.protocol.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC
from anabranch.protocol.registry import api_of
from tests.sim.aims import aim
from tests.sim.aims_of_disks import within
from tests.sim.clients import CLIENT_FAILURES, GROUP, TOPIC, Reader
from tests.sim.history import Commit
from tests.sim.loop import Process

SLEEPING = {"copiers": 0, "readers": 2, "keys": 8, "fault_s": 6.0, "pace_s": 0.2, "write_pause_s": 0.03}

SILENT = {"commit_intervals_ms": (6_000,)}
"""A commit that is due would show the member that it is replaced."""


@aim(
    "a member sleeps past the session of its coordinator, and believes in a longer one",
    {**SLEEPING, **SILENT, "rebalance_timeout_ms": 12_000},  # else that ends its lease
    assigning=True,
)
@aim("a member sleeps past its session with records at hand", {**SLEEPING, **SILENT}, resizing=True)
async def member_sleeps(schedule: Any) -> bool:
    """Another one reads its partitions meanwhile, and beyond what a resize made of them; then it wakes up."""
    cluster, rng = schedule.cluster, schedule.rng
    reader = rng.choice(schedule.readers)
    process, reader.block_s = reader.process, 0.05
    deadline = cluster.now() + 3
    while not reader.blocked and cluster.now() < deadline:
        await asyncio.sleep(0.01)
    held, known = reader.at_hand, len(cluster.history.read_starts)
    if not reader.blocked or reader.process is not process:
        reader.block_s = 0.0
        return False
    cluster.tell(f"{reader.identity} sleeps, and has records of {sorted(held)}")
    cluster.loop.freeze(process)
    await asyncio.sleep(2)
    read_starts, deadline = cluster.history.read_starts, cluster.now() + 3
    while not (taken := any(one.place in held for one in read_starts[known:])) and cluster.now() < deadline:
        await asyncio.sleep(0.01)
    await asyncio.sleep(rng.random())
    if reader.process is process:
        cluster.loop.thaw(process)
    await asyncio.sleep(0.5)
    return taken


@aim(
    "a coordinator sleeps past its session, and a member reaches no other broker",
    {**SLEEPING, "fault_s": 10.0, "spares": 1, "slow": 0.0, "write_pause_s": 0.1, "rebalance_timeout_ms": 12_000},
)
async def coordinator_sleeps(schedule: Any) -> bool:
    """Another broker coordinates the group meanwhile, and gives the member's partitions to another member.

    The coordinator that resumes does not hear from the controller, and the member is about to hand out what it has.
    """
    cluster, reader = schedule.cluster, schedule.rng.choice(schedule.readers)
    intervals_ms = reader.commit_intervals_ms
    await _restart(
        schedule, reader, commit_intervals_ms=(60_000,)
    )  # a commit would show the member that it is replaced
    process, reader.block_s, came_about = reader.process, 10.0, False
    if await within(schedule, 3, lambda: reader.blocked) and reader.process is process:
        node, controller = cluster.leader(CONSUMER_OFFSETS_TOPIC, 0), cluster.active_controller()
        if node == controller:
            cluster.expire_session(node)
        elif node in cluster.machines:
            came_about = await _replaced_unheard(schedule, reader, node)
    reader.block_s = 0.0
    reader.woken.set()
    await asyncio.sleep(0.5)
    cluster.network.heal_all()
    await _restart(schedule, reader, commit_intervals_ms=intervals_ms)
    return came_about


async def _replaced_unheard(schedule: Any, reader: Reader, node: int) -> bool:
    """Put the coordinator and the member in a world of their own until another coordinator has replaced the member."""
    cluster, session = schedule.cluster, reader.consumer._session
    host, held, known = cluster.machines[node].host, reader.at_hand, len(cluster.history.read_starts)
    cluster.tell(f"{host} sleeps; {reader.identity} has records of {sorted(held)}, and reaches no other")
    cluster.partition([reader.host], [one.host for one in cluster.machines.values() if one.host != host])
    cluster.network.block(cluster.machines[cluster.active_controller()].host, host)
    cluster.freeze(node)
    cluster.expire_session(node)

    def taken() -> bool:
        rows = cluster.history.read_starts[known:]
        return any(one.place in held and one.consumer != reader.identity for one in rows)

    came_about = await within(schedule, 4, taken)
    cluster.thaw(node)
    await within(schedule, 1.9, lambda: session.membership.may_commit(session._clock_s()))
    return came_about


@aim(
    "a member of another make commits after it was replaced",
    {"copiers": 0, "readers": 2, "keys": 8, "fault_s": 6.0, "pace_s": 0.2, "write_pause_s": 0.05},
)
async def zombie_commits(schedule: Any) -> bool:
    """As whom and what it would have committed before it slept. Ours asks before it commits; others do not."""
    cluster, reader = schedule.cluster, schedule.rng.choice(schedule.readers)
    history, process = cluster.history, reader.process

    def at_work() -> bool:
        return reader.consumer is not None and reader.consumer._started and bool(reader.consumer.assignment())

    if not await within(schedule, 3, at_work) or reader.process is not process:
        return False
    membership = reader.consumer._session.membership
    offsets = {one.partition.partition: one.position for one in reader.consumer._core.assignment if one.handed_out >= 0}
    request = _commit_of(membership, offsets)
    cluster.tell(f"{reader.identity} sleeps, with a commit of {offsets} in mind")
    known = len(history.read_starts)
    cluster.loop.freeze(process)
    taken = await within(
        schedule,
        6,
        lambda: any(row.place[0] == TOPIC and row.place[1] in offsets for row in history.read_starts[known:]),
    )
    if taken:
        places = {(TOPIC, index): at for index, at in offsets.items()}
        row = Commit(history.tick(), reader.identity, places, request.generation_id_or_member_epoch)
        history.commits.append(row)
        await cluster.loop.spawn(Process(f"zombie-{known}", "zombie"), _send(schedule, request, row))
    if reader.process is process:
        cluster.loop.thaw(process)
    return taken and row.outcome != "info"


def _commit_of(membership: ClassicMembership, offsets: Mapping[int, int]) -> OffsetCommitRequest:
    places = {TopicPartition(TOPIC, index): at for index, at in offsets.items()}
    return commit_request(GROUP, places, generation=membership.generation, member_id=membership.member_id)


async def _send(schedule: Any, request: OffsetCommitRequest, row: Commit) -> None:
    def refusal(response: OffsetCommitResponse) -> int:
        return max(one.error_code for topic in response.topics for one in topic.partitions)

    cluster = schedule.cluster
    with contextlib.suppress(*CLIENT_FAILURES):
        async with Admin(cluster.bootstrap, request_timeout_ms=1500, rng=cluster.rng(f"zombie-{row.order}")) as admin:
            response = await admin.network.call_coordinator(GROUP, request, refusal)
            row.outcome = "fail" if refusal(response) else "ok"
            row.acked_order = cluster.history.tick()
            cluster.tell(f"the zombie's commit: {ErrorCode(refusal(response)).name}")


STATIC = {**SLEEPING, "fault_s": 7.0}
LONG_SESSION_MS = 20_000
"""Longer than a story: whoever relies on it is not yet expired."""


@aim("a static member sleeps while another instance replaces it", STATIC, resizing=True)
async def static_member_is_replaced(schedule: Any) -> bool:
    """The sleeper has records at hand, and wakes up within its session; the next one has read beyond them."""
    cluster, rng = schedule.cluster, schedule.rng
    reader = rng.choice(schedule.readers)
    await _restart(schedule, reader, instance_id=f"{reader.name}-instance", session_timeout_ms=LONG_SESSION_MS)
    process, reader.block_s = reader.process, 0.05
    if not await within(schedule, 4, lambda: reader.blocked) or reader.process is not process:
        reader.block_s = 0.0
        return False
    held, known = reader.at_hand, len(cluster.history.read_starts)
    cluster.tell(f"{reader.identity} sleeps, and has records of {sorted(held)}")
    cluster.loop.freeze(process)
    twin = Reader(cluster, f"{reader.name}-twin-{known}", strategy=reader.strategy, protocol=reader.protocol)
    twin.instance_id, twin.session_timeout_ms = reader.instance_id, LONG_SESSION_MS
    await asyncio.sleep(0.5 * rng.random())
    twin.start()
    read_starts = cluster.history.read_starts
    taken = await within(
        schedule, 4, lambda: any(one.place in held and one.consumer == twin.identity for one in read_starts[known:])
    )
    await asyncio.sleep(1.2 + rng.random())
    if reader.process is process:
        cluster.loop.thaw(process)
    await asyncio.sleep(rng.random())
    twin.kill()
    return taken


@aim("a static member of a KIP-848 group leaves for a while, or for good", STATIC, assigning=True)
@aim("a static member restarts within its session", STATIC, resizing=True)
async def static_member_restarts(schedule: Any) -> bool:
    """Its partitions wait for it. A classic one may as well die; one of KIP-848 may come back as another instance."""
    cluster, rng = schedule.cluster, schedule.rng
    reader = rng.choice(schedule.readers)
    await _restart(schedule, reader, instance_id=f"{reader.name}-instance", session_timeout_ms=LONG_SESSION_MS)
    if not await within(schedule, 4, lambda: bool(reader.consumer.assignment())):
        return False
    held, known = {tuple(one) for one in reader.consumer.assignment()}, len(cluster.history.read_starts)
    if reader.protocol == "classic" and rng.random() < 0.5:
        reader.kill()
    else:
        reader.stopping = True
        await within(schedule, 5, reader.task.done)
        reader.stopping, reader.process = False, None
    await asyncio.sleep(0.2 + rng.random())
    if reader.protocol == "consumer" and rng.random() < 0.6:
        reader.instance_id = f"{reader.name}-instance-{known}"
    reader.start()
    read_starts = cluster.history.read_starts
    return await within(
        schedule, 6, lambda: any(one.place in held and one.consumer == reader.identity for one in read_starts[known:])
    )


async def _restart(schedule: Any, reader: Reader, **settings: Any) -> None:
    """Restart a reader with other settings, and wait for its assignment."""
    if reader.alive:
        reader.kill()
    for name, value in settings.items():
        setattr(reader, name, value)
    reader.consumer = None
    await asyncio.sleep(0.1)
    reader.start()
    await within(schedule, 6, lambda: reader.consumer is not None and bool(reader.consumer.assignment()))


@aim(
    "a copier sleeps in a transaction while another takes its partitions",
    {"copiers": 2, "readers": 1, "counts": [3], "keys": 8, "spares": 1, "fault_s": 8.0, "pace_s": 0.2},
)
async def zombie_copies(schedule: Any) -> bool:
    """It resumes before its transaction times out, and continues it."""
    cluster, history = schedule.cluster, schedule.cluster.history
    known = len(history.transactions)

    def in_the_middle() -> bool:
        rows = history.transactions[known:]
        return bool(rows) and not rows[-1].requested_end and not rows[-1].offsets_accepted

    if not await within(schedule, 3, in_the_middle):
        return False
    row = history.transactions[-1]
    copier = next(one for one in schedule.copiers if one.name == row.transactional_id)
    process, read_starts = copier.process, len(history.assigned)
    cluster.tell(f"{row.name} sleeps before its offsets {dict(row.offsets)} are in it")
    cluster.loop.freeze(process)
    taken = await within(
        schedule, 4, lambda: any(row.offsets.keys() & set(one.places) for one in history.assigned[read_starts:])
    )
    await asyncio.sleep(0.3)
    if copier.process is process:
        cluster.loop.thaw(process)
    await asyncio.sleep(0.5)
    return taken


@aim(
    "a member's fetches do not go on",
    {
        "copiers": 0,
        "readers": 2,
        "counts": [3],
        "keys": 8,
        "fault_s": 3.0,
        "pace_s": 0.2,
        "slow": 0.0,
        "write_pause_s": 0.05,
        "metadata_max_age_ms": 300_000,
    },
)
async def fetches_stall(schedule: Any) -> bool:
    """A connection of it carries nothing any more and does not end, while its heart beats over others."""
    cluster, reader = schedule.cluster, schedule.rng.choice(schedule.readers)
    process, links = reader.process, [(reader.host, one.host) for one in cluster.brokers]
    stalled = [cluster.network.snare(*link, api_of(FetchRequest).key) for link in links]
    caught = await within(schedule, 2, lambda: any(stalled))
    for link in links:
        cluster.network.unsnare(*link)
    cluster.tell(f"a fetch of {reader.identity} goes no further")
    await asyncio.sleep(1)
    return caught and reader.process is process and bool(reader.consumer.assignment())


PATIENT: Final = {"request_timeout_ms": 40_000, "rebalance_timeout_ms": 300_000}
"""The defaults, which are much longer than a session here."""
HEARD_WITHIN_S: Final = 12.0


FROZEN: Final = {"copiers": 0, "readers": 2, "keys": 8, "fault_s": 10.0, "pace_s": 0.2, "spares": 1}
FORGOTTEN_S: Final = 2.5
"""After that no lease is left of what the frozen coordinator said: a session lasts 2 s."""


@aim("a coordinator of KIP-848 freezes, and its members have the default timeouts", FROZEN, assigning=True)
@aim("a coordinator freezes, and its members have the default timeouts", FROZEN, resizing=True)
async def coordinator_freezes(schedule: Any) -> bool:
    """While it is frozen, each member must find the next one: also one whose join waits for the others."""
    cluster, rng = schedule.cluster, schedule.rng
    for reader in schedule.readers:
        await _restart(schedule, reader, **PATIENT)
    node = cluster.leader(CONSUMER_OFFSETS_TOPIC, 0)
    if node <= 0 or not cluster.machines[node].up or not all(one.alive for one in schedule.readers):
        return False
    if rng.random() < 0.6:  # then one joins, and waits until the others have heard of that
        reader = rng.choice(schedule.readers)
        reader.kill()
        reader.start()
        await asyncio.sleep(rng.random() * 0.3)
    cluster.tell(f"freeze node {node}, which coordinates the group")
    process, frozen_s = cluster.machines[node].process, cluster.now()
    cluster.freeze(node)

    def all_heard() -> bool:
        return all(_lease_of(one) > cluster.now() > frozen_s + FORGOTTEN_S for one in schedule.readers)

    await cluster.until(all_heard, HEARD_WITHIN_S, "each member hears from the next coordinator", rule=LIVENESS)
    moved = cluster.leader(CONSUMER_OFFSETS_TOPIC, 0) not in (-1, node)
    if cluster.machines[node].process is process:
        cluster.thaw(node)
    for reader in schedule.readers:
        reader.request_timeout_ms, reader.rebalance_timeout_ms = 2500, 3000
    return moved


def _lease_of(reader: Reader) -> float:
    """Until when a member knows that it is one."""
    membership = None if reader.consumer is None else reader.consumer._core.membership
    return -1.0 if membership is None else membership.lease.until
