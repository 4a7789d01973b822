"""Members of a group share a partition: each record has one member at a time.

Method: real brokers over TCP; members written for the tests, so that each request can be the wrong one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno

import pytest

from anabranch import Producer
from anabranch.broker.coordinators.share_partitions.share_state import ShareKey, ShareState
from anabranch.faults.rule import Rule
from anabranch.protocol.errors import ErrorCode
from tests.broker.coordinators.share_partitions.sharing import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    TOPIC,
    Member,
    members,
    send,
    sharing,
    until,
)


async def open_sessions(*ones: Member) -> None:
    """Let the members join, and their group begin at the end of the partition."""
    for one in ones:
        await one.join()
        assert (await one.fetch()).acquired == []


async def test_members_share_a_partition_record_by_record() -> None:
    async with sharing() as cluster, members(cluster, "a", "b") as (a, b):
        await open_sessions(a, b)
        await send(cluster, 4)
        assert (await a.fetch(max_records=2)).values == {0: b"0", 1: b"1"}
        assert (await b.fetch()).values == {2: b"2", 3: b"3"}
        assert await a.acknowledge(0, 1, ACCEPT, RELEASE) == (0, 0)
        assert (await b.fetch(said={0: [(2, 3, [ACCEPT])]})).acquired == [(1, 1, 2)]
        assert await b.acknowledge(1, 1, REJECT) == (0, 0)
        assert (await a.fetch()).acquired == []


async def test_share_fetch_waits_for_new_and_released_records() -> None:
    async with sharing() as cluster, members(cluster, "a", "b") as (a, b):
        await open_sessions(a, b)
        waiting = asyncio.create_task(a.fetch(wait_ms=60_000))
        await send(cluster, 1)
        assert (await waiting).acquired == [(0, 0, 1)]
        waiting = asyncio.create_task(b.fetch(wait_ms=60_000))
        await asyncio.sleep(0)
        assert await a.acknowledge(0, 0, RELEASE) == (0, 0)
        assert (await waiting).acquired == [(0, 0, 2)]


async def test_closed_connection_or_session_releases_acquired_records() -> None:
    async with sharing() as cluster, members(cluster, "a", "b") as (a, b):
        await open_sessions(a, b)
        await send(cluster, 1)
        assert (await a.fetch()).acquired == [(0, 0, 1)]
        waiting = asyncio.create_task(b.fetch(wait_ms=60_000))
        await a.close()
        assert (await waiting).acquired == [(0, 0, 2)]
        assert (await b.fetch(session_epoch=-1)).error == 0
        b.session_epoch = 0
        assert (await b.fetch(wait_ms=60_000)).acquired == [(0, 0, 3)]


async def test_pending_share_fetch_of_a_closed_session_acquires_nothing() -> None:
    async with sharing() as cluster, members(cluster, "a", "a") as (a, again):
        await open_sessions(a)
        (node,) = cluster.nodes.values()
        waiting = asyncio.create_task(a.fetch(wait_ms=60_000))
        await until(lambda: len(node.services.replicas.rooms.fetches) > 0)
        again.assigned = a.assigned
        assert (await again.fetch()).acquired == [], "it begins anew, over another connection"
        await send(cluster, 1)
        got = await again.fetch(wait_ms=60_000)
        assert (got.acquired, (await waiting).acquired) == ([(0, 0, 1)], [])


async def test_pending_share_fetch_acquires_nothing_of_a_reloaded_partition() -> None:
    async with sharing() as cluster, members(cluster, "a", "b") as (a, b):
        await open_sessions(a, b)
        (node,) = cluster.nodes.values()
        waiting = asyncio.create_task(a.fetch(wait_ms=60_000))
        await until(lambda: len(node.services.replicas.rooms.fetches) > 0)
        (key,) = node.services.shares.partitions.served_keys()
        node.services.shares.partitions.forget(key)
        assert (await b.fetch()).acquired == []
        await send(cluster, 1)
        got = [*(await waiting).acquired, *(await b.fetch(wait_ms=1)).acquired]
        assert got == [(0, 0, 1)], "one of them has it"


async def test_partition_without_sessions_is_unloaded_after_its_state_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the next reader would get an old delivery count."""
    async with sharing() as cluster, members(cluster, "a", "b") as (a, b):
        await open_sessions(a, b)
        await send(cluster, 2)
        assert (await b.fetch()).acquired == [(0, 1, 1)]
        (node,) = cluster.nodes.values()
        sessions, partitions = node.services.shares.sessions, node.services.shares.partitions
        (key,) = partitions.served_keys()
        one = partitions.get_loaded(key)
        assert one is not None
        forget, changing = partitions.forget, []

        def forgetting(key: ShareKey) -> None:
            changing.extend(flight for flight in one.shared.flights() if flight.becomes is not None)
            forget(key)

        monkeypatch.setattr(partitions, "forget", forgetting)
        await one.turn.acquire()  # a change that takes its time
        await a.close()
        await until(lambda: len(sessions) == 1)
        await b.close()
        await until(lambda: len(sessions) == 0)
        one.turn.release()
        await until(lambda: key not in partitions.served_keys())
        assert changing == []


@pytest.mark.parametrize("fetches", [True, False])
async def test_acknowledgement_does_not_wait_for_that_of_another_partition(fetches: bool) -> None:
    """Its share coordinator may be unavailable."""
    async with sharing(partitions=2) as cluster, members(cluster, "a") as (a,):
        await a.join(2)
        assert (await a.fetch()).acquired == []
        async with Producer(cluster.bootstrap_servers) as producer:
            for index in (0, 1):
                await producer.send_and_wait(TOPIC, b"x", partition=index)
        assert (await a.fetch()).acquired == [(0, 0, 1)] * 2
        (topic_id,) = a.assigned
        (node,) = cluster.nodes.values()
        slow, quick = (node.services.shares.partitions.get_loaded(ShareKey("g", topic_id, one)) for one in (0, 1))
        assert slow is not None and quick is not None
        await slow.turn.acquire()  # a change that takes its time
        said = {index: [(0, 0, [ACCEPT])] for index in (0, 1)}
        waiting = asyncio.create_task(a.fetch(said=said) if fetches else a.acknowledge_all(said))
        await until(lambda: quick.shared.start_offset == 1)
        assert slow.shared.start_offset == 0
        slow.turn.release()
        assert (await waiting).acknowledge_errors == {0: 0, 1: 0}


@pytest.mark.parametrize("fetches", [True, False])
async def test_last_request_of_a_group_counts_the_deliveries_that_it_leaves_unacknowledged(fetches: bool) -> None:
    async with sharing() as cluster, members(cluster, "a", "b") as (a, b):
        await a.join()
        assert (await a.fetch()).acquired == []
        await send(cluster, 2)
        assert (await a.fetch()).acquired == [(0, 1, 1)]
        if fetches:
            assert (await a.fetch(said={0: [(0, 0, [ACCEPT])]}, session_epoch=-1)).acknowledge_errors == {0: 0}
        else:
            assert await a.acknowledge(0, 0, ACCEPT, session_epoch=-1) == (0, 0)
        await b.join()
        assert (await b.fetch(wait_ms=60_000)).acquired == [(1, 1, 2)]


async def test_state_read_in_an_earlier_leader_epoch_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sharing() as cluster, members(cluster, "a") as (a,):
        await a.join()
        await send(cluster, 1)
        (node,) = cluster.nodes.values()
        persister, partition = node.services.shares.persister, node.services.replicas.leader_of(TOPIC, 0)
        leader_epochs: list[int] = []
        read = persister.read

        async def reading(key: ShareKey, leader_epoch: int) -> ShareState:
            found = await read(key, leader_epoch)
            if not leader_epochs:
                partition.leader_epoch += 1
            leader_epochs.append(leader_epoch)
            return found

        monkeypatch.setattr(persister, "read", reading)
        assert (await a.fetch()).errors == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert (await a.fetch()).error == 0
        assert leader_epochs == [partition.leader_epoch - 1, partition.leader_epoch], "it fences the earlier epoch"


async def test_nothing_is_acquired_under_an_ended_leader_epoch() -> None:
    """The next request loads the partition again, so another member would get the same record."""
    async with sharing(partitions=2) as cluster, members(cluster, "a", "b") as (a, b):
        (node,) = cluster.nodes.values()
        partition = node.services.replicas.leader_of(TOPIC, 0)
        await a.join(2)
        (topic_id,) = a.assigned
        a.assigned = b.assigned = {topic_id: [0]}
        assert (await a.fetch()).acquired == []
        a.assigned = {topic_id: [0, 1]}
        held = cluster.faults.add(api="ReadShareGroupState", between_brokers=True, hold=True, times=1)
        fetching = asyncio.create_task(a.fetch())
        await held.wait_hit()  # it has found nothing in partition 0, and waits half a second for partition 1
        partition.leader_epoch += 1
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send_and_wait(TOPIC, b"0", partition=0)
        first = (await fetching).acquired
        held.release()
        assert (first, (await b.fetch()).acquired) == ([], [(0, 0, 1)]), "one member has the record"


@pytest.mark.parametrize(
    ("code", "again"),
    [
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_refused_acknowledgement_is_repeated_unless_the_group_is_no_longer_served(
    code: ErrorCode, again: ErrorCode
) -> None:
    """A new incarnation of the group, or a new leader, knows nothing of what a member holds."""
    async with sharing() as cluster, members(cluster, "a") as (a,):
        await open_sessions(a)
        await send(cluster, 1)
        assert (await a.fetch()).acquired == [(0, 0, 1)]
        cluster.faults.add(api="WriteShareGroupState", between_brokers=True, times=1, error=code.name)
        assert await a.acknowledge(0, 0, ACCEPT) == (0, code)
        (node,) = cluster.nodes.values()
        assert len(list(node.services.shares.partitions.served_keys())) == (again is ErrorCode.NONE)
        assert await a.acknowledge(0, 0, ACCEPT) == (0, again)


async def test_partition_whose_disk_fails_the_search_for_the_start_is_loaded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with sharing() as cluster, members(cluster, "a") as (a,):
        await a.join()
        (node,) = cluster.nodes.values()
        log = node.services.replicas.leader_of(TOPIC, 0).log
        assert node.services.broker is not None
        node.services.broker.group_configs._given = {"g": {"share.auto.offset.reset": "by_duration:PT1H"}}

        def failing(*_: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as disk:
            disk.setattr(type(log), "offset_for_timestamp", failing)
            assert (await a.fetch()).errors == {0: ErrorCode.KAFKA_STORAGE_ERROR}
        assert (await a.fetch()).errors == {}


async def test_acquisition_lock_expires_unless_renewed() -> None:
    async with (
        sharing(group_share_record_lock_duration_ms="1000") as cluster,
        members(cluster, "a", "b") as (a, b),
    ):
        await open_sessions(a, b)
        await send(cluster, 1)
        await a.fetch()
        assert (await b.fetch(wait_ms=60_000)).acquired == [(0, 0, 2)]
        assert await a.acknowledge(0, 0, ACCEPT) == (0, ErrorCode.INVALID_RECORD_STATE)
        assert await b.acknowledge(0, 0, RENEW) == (0, 0)
        assert await b.acknowledge(0, 0, ACCEPT) == (0, 0)
        assert (await a.fetch()).acquired == []


async def test_failover_keeps_acknowledgements_and_redelivers_acquired_records() -> None:
    async with sharing(3) as cluster, members(cluster, "a") as (a,):
        await a.join()
        leader = leader_of(cluster)
        assert (await a.fetch(leader)).acquired == []
        await send(cluster, 4)
        await a.fetch(leader)
        assert await a.acknowledge(0, 3, ACCEPT, RELEASE, REJECT, RELEASE, broker=leader) == (0, 0)
        assert (await a.fetch(leader, max_records=1, share_acquire_mode=1)).acquired == [(1, 1, 2)]
        await cluster.nodes.pop(leader).stop()
        a.session_epoch = 0
        while True:
            successor = leader_of(cluster)
            if successor in cluster.nodes:
                got = await a.fetch(successor)
                if got.acquired:
                    break
                a.session_epoch = 0
            await asyncio.sleep(0.01)
        assert got.acquired == [(1, 1, 2), (3, 3, 2)], "what was only held counts as not delivered"


async def test_invalid_requests_change_nothing() -> None:
    async with sharing() as cluster, members(cluster, "a", "b") as (a, b):
        await open_sessions(a, b)
        await send(cluster, 2)
        await a.fetch()
        assert await b.acknowledge(0, 0, ACCEPT) == (0, ErrorCode.INVALID_RECORD_STATE)
        assert await a.acknowledge(0, 7, ACCEPT) == (0, ErrorCode.INVALID_REQUEST)
        assert await a.acknowledge(1, 0, ACCEPT) == (0, ErrorCode.INVALID_REQUEST)
        assert await a.acknowledge(0, 1, ACCEPT, 9) == (0, ErrorCode.INVALID_REQUEST)
        assert await a.acknowledge(0, 1, ACCEPT, session_epoch=1) == (ErrorCode.INVALID_SHARE_SESSION_EPOCH, 0)
        assert await a.acknowledge(0, 1, ACCEPT, session_epoch=0) == (ErrorCode.INVALID_SHARE_SESSION_EPOCH, 0)
        opening = await a.fetch(said={0: [(0, 1, [ACCEPT])]}, session_epoch=0)
        assert opening.error == ErrorCode.INVALID_REQUEST
        stranger = Member(cluster, "x" * 37)
        stranger.assigned = a.assigned
        assert (await stranger.fetch()).error == ErrorCode.INVALID_REQUEST
        await stranger.close()
        unknown = Member(cluster, "unknown")
        unknown.assigned = {bytes(15) + b"\1": [0]}
        assert (await unknown.fetch()).errors == {0: ErrorCode.UNKNOWN_TOPIC_ID}
        await unknown.close()
        assert await a.acknowledge(0, 1, ACCEPT) == (0, 0)


async def test_batches_not_acquired_are_not_returned() -> None:
    async with sharing() as cluster, members(cluster, "a", "b") as (a, b):
        await open_sessions(a, b)
        for _ in range(4):
            await send(cluster, 1)
        assert (await a.fetch(max_records=1)).acquired == [(0, 0, 1)]
        got = await b.fetch(max_records=2)
        assert (got.acquired, got.batches) == ([(1, 2, 1)], [1, 2])
        assert await a.acknowledge(0, 0, RELEASE) == (0, 0)
        got = await b.fetch(max_records=1)
        assert (got.acquired, got.batches) == ([(0, 0, 2)], [0])


async def test_strict_acquire_mode_returns_at_most_max_records() -> None:
    async with sharing() as cluster, members(cluster, "a") as (a,):
        await open_sessions(a)
        await send(cluster, 3)
        assert (await a.fetch(max_records=2, share_acquire_mode=1)).acquired == [(0, 1, 1)]
        assert (await a.fetch(max_records=2, share_acquire_mode=1)).acquired == [(2, 2, 1)]


async def test_failing_record_is_isolated() -> None:
    """As in Kafka 4.2: half of its batch at the fourth delivery, alone at the fifth and last one."""
    async with sharing() as cluster, members(cluster, "a") as (a,):
        await open_sessions(a)
        await send(cluster, 8)
        acquired = []
        for _ in range(3):
            acquired.append((await a.fetch()).acquired)
            assert await a.acknowledge(0, 7, RELEASE) == (0, 0)
        assert acquired == [[(0, 7, 1)], [(0, 7, 2)], [(0, 7, 3)]]
        assert (await a.fetch()).acquired == [(0, 3, 4)]
        assert await a.acknowledge(0, 3, RELEASE) == (0, 0)
        assert [(await a.fetch()).acquired for _ in range(5)] == [[(n, n, 5)] for n in range(4)] + [[(4, 7, 4)]]
        assert await a.acknowledge(0, 7, ACCEPT, RELEASE, ACCEPT, ACCEPT, ACCEPT, ACCEPT, ACCEPT, ACCEPT) == (0, 0)
        assert (await a.fetch()).acquired == [], "the record that failed is archived, and no other"


def leader_of(cluster: object) -> int:
    images = [node.services.metadata for node in cluster.nodes.values()]  # type: ignore[attr-defined]
    found: int = images[0].partition("t", 0).leader
    return found


async def test_read_committed_group_skips_records_of_aborted_transactions() -> None:
    async with sharing() as cluster, members(cluster, "a") as (a,):
        (node,) = cluster.nodes.values()
        assert node.services.broker is not None
        node.services.broker.group_configs._given["g"] = {
            "share.auto.offset.reset": "earliest",
            "share.isolation.level": "read_committed",
        }
        async with Producer(cluster.bootstrap_servers, transactional_id="x") as producer:
            with contextlib.suppress(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait(TOPIC, b"aborted")
                    raise ZeroDivisionError
            async with producer.transaction():
                await producer.send_and_wait(TOPIC, b"committed")
        await a.join()
        got = await a.fetch(wait_ms=60_000)
        assert [value for value in got.values.values() if b"ted" in value] == [b"committed"]
        assert min(first for first, _, _ in got.acquired) == 1, "the first record is archived"


async def test_delayed_state_write_does_not_override_a_later_one() -> None:
    """Its leader has retried or given up meanwhile; later acknowledged changes must persist."""
    async with sharing(request_timeout_ms="2000") as cluster, members(cluster, "a", "b") as (a, b):
        await open_sessions(a, b)
        await send(cluster, 2)
        assert list((await a.fetch()).values) == [0, 1]
        late = cluster.faults.add(api="WriteShareGroupState", between_brokers=True, times=1, hold=True)
        await a.acknowledge(1, 1, RELEASE)
        assert late.hits == 1
        await a.fetch()
        assert await a.acknowledge(1, 1, ACCEPT) == (0, 0)
        late.release()
        for one in (a, b):
            await one.close()  # nobody reads any more: whoever comes next begins with what is stored
        again = Member(cluster, "c")
        await again.join()
        assert list((await again.fetch(wait_ms=60_000)).values) == [0]
        await again.close()


async def test_partition_whose_state_is_not_available_does_not_delay_the_others() -> None:
    """Its share coordinator may have no leader for a long time."""
    async with sharing(partitions=2) as cluster, members(cluster, "a") as (a,):
        (node,) = cluster.nodes.values()
        await a.join(2)
        assert (await a.fetch()).acquired == []
        (topic_id,) = a.assigned
        node.services.shares.partitions.forget(ShareKey("g", topic_id, 1))
        rule = cluster.faults.add(
            Rule(api=("ReadShareGroupState",), between_brokers=True, partition=(1,), hold=True, times=1)
        )
        async with Producer(cluster.bootstrap_servers) as producer, asyncio.timeout(20):
            await producer.send_and_wait(TOPIC, b"zero", partition=0)
            await producer.send_and_wait(TOPIC, b"one", partition=1)
            assert list((await a.fetch()).values.values()) == [b"zero"]
            await rule.wait_hit()
            assert (await a.fetch()).acquired == []
            rule.release()
            while not (got := await a.fetch(wait_ms=1000)).acquired:
                pass
        assert list(got.values.values()) == [b"one"]
