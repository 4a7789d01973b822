"""Fetch over the wire: its versions, and sessions."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

import pytest

from anabranch.broker.authorization.peer import UNKNOWN_PEER
from anabranch.broker.dispatch.request_context import RequestContext
from anabranch.broker.handlers.fetch import fetch
from anabranch.broker.replication.fetch_reader import PARTITIONS_PER_STEP
from anabranch.broker.replication.replica_selector import RACK_AWARE
from anabranch.broker.storage.log import PartitionLog
from anabranch.protocol.apis.fetch import (
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
    ReplicaState,
)
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import (
    batch,
    fetch_request,
    replica_cluster,
    topic_id_of,
    until,
    values,
)


@pytest.mark.parametrize("version", range(4, 18))
async def test_every_fetch_version_reads_the_same_records(version: int) -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a", "b"))
        row = await cluster.fetch(1, 0, version=version)
        assert (row.error_code, row.high_watermark, values(row.records)) == (0, 2, ["a", "b"])


def in_session(
    session_id: int, epoch: int, *topics: tuple[str, int], forgotten: tuple[str, ...] = (), **more: Any
) -> FetchRequest:
    """A request in a session that names these (topic, offset)."""
    request = fetch_request(0, **more)
    request.session_id, request.session_epoch = session_id, epoch
    request.topics = [fetch_request(offset, topic=topic).topics[0] for topic, offset in topics]
    request.forgotten_topics_data = [
        ForgottenTopic(topic=topic, topic_id=topic_id_of(topic), partitions=[0]) for topic in forgotten
    ]
    return request


def rows_of(response: FetchResponse) -> dict[str, tuple[int, int, list[str]]]:
    """Per topic of an answer: error, high watermark, records."""
    return {
        (topic.topic or topic.topic_id.decode().rstrip("-")): (row.error_code, row.high_watermark, values(row.records))
        for topic in response.responses
        for row in topic.partitions
    }


@pytest.mark.parametrize(
    ("session_id", "session_epoch", "code", "session"),
    [
        (0, -1, 0, False),
        (0, 0, 0, True),
        (5, 0, 0, True),
        (5, -1, 0, False),
        (5, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, False),
        (0, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, False),
    ],
)
async def test_fetch_session_is_created_on_request(
    session_id: int, session_epoch: int, code: int, session: bool
) -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a"))
        request = in_session(session_id, session_epoch, ("t", 0))
        response: FetchResponse = await cluster.call(cluster[1], request)
        assert (response.error_code, response.session_id != 0) == (code, session)
        assert rows_of(response) == ({} if code else {"t": (0, 1, ["a"])})


@pytest.mark.parametrize("version", [7, 11, 12, 13, 17])
async def test_incremental_fetch_returns_changed_partitions_only(version: int) -> None:
    async with replica_cluster(1) as cluster:
        for topic in "tuv":
            await cluster.lead(1, replicas=(1,), topic=topic)

        async def ask(*arguments: Any, **more: Any) -> FetchResponse:
            response: FetchResponse = await cluster.call(cluster[1], in_session(*arguments, **more), version=version)
            return response

        first = await ask(0, 0, ("t", 0), ("u", 0), ("v", 0))
        n = first.session_id
        assert rows_of(first) == {"t": (0, 0, []), "u": (0, 0, []), "v": (0, 0, [])}
        assert rows_of(await ask(n, 1)) == {}
        await cluster.produce(1, batch("a"), topic="u")
        answer = await ask(n, 2)
        assert (answer.session_id, rows_of(answer)) == (n, {"u": (0, 1, ["a"])})
        assert rows_of(await ask(n, 3)) == {"u": (0, 1, ["a"])}, "until the offset moves, there are records"
        assert rows_of(await ask(n, 4, ("u", 1))) == {}
        for topic in "tuv":
            await cluster.produce(1, batch(topic), topic=topic)
        assert list(rows_of(await ask(n, 5, max_wait_ms=0))) == ["t", "v", "u"], "u got records last"
        assert list(rows_of(await ask(n, 6, ("t", 9), ("u", 2), forgotten=("v",)))) == ["t"]
        repaired = await ask(n, 7, ("t", 1))
        assert rows_of(repaired) == {"t": (0, 1, [])}, "after an error it is told again, though nothing is new"
        assert (await ask(n, 7)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert rows_of(await ask(n, 8)) == {}
        last = await ask(n, 9, forgotten=("t", "u"))
        assert (last.error_code, last.session_id, last.responses) == (0, 0, [])
        assert (await ask(n, 10)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_fetch_session_does_not_mix_topic_ids_and_names() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        opened = await cluster.call(cluster[1], in_session(0, 0, ("t", 0)), version=12)
        request = in_session(opened.session_id, 1)
        response = await cluster.call(cluster[1], request, version=13)
        assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        assert (await cluster.call(cluster[1], request, version=12)).error_code == 0


async def test_fetch_session_returns_a_topic_once_it_is_known() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        opened = await cluster.call(cluster[1], in_session(0, 0, ("t", 0), ("u", 0)))
        n = opened.session_id
        assert rows_of(opened)["u"][0] == ErrorCode.UNKNOWN_TOPIC_ID
        assert rows_of(await cluster.call(cluster[1], in_session(n, 1))) == {"u": (ErrorCode.UNKNOWN_TOPIC_ID, -1, [])}
        await cluster.lead(1, replicas=(1,), topic="u")
        await cluster.produce(1, batch("a"), topic="u")
        assert rows_of(await cluster.call(cluster[1], in_session(n, 2))) == {"u": (0, 1, ["a"])}


async def test_fetch_session_returns_log_start_changes_and_partition_errors() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a", "b"))
        n = (await cluster.call(cluster[1], in_session(0, 0, ("t", 2)))).session_id
        assert rows_of(await cluster.call(cluster[1], in_session(n, 1))) == {}
        cluster.partition(1).log.increment_log_start_offset(1)
        assert rows_of(await cluster.call(cluster[1], in_session(n, 2))) == {"t": (0, 2, [])}
        assert rows_of(await cluster.call(cluster[1], in_session(n, 3))) == {}
        cluster[1].replicas.stop_replica("t", 0, -1, delete=False)
        assert rows_of(await cluster.call(cluster[1], in_session(n, 4)))["t"][0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_newer_incremental_fetch_completes_the_waiting_one() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        n = (await cluster.call(cluster[1], in_session(0, 0, ("t", 0)))).session_id

        async def parked(epoch: int) -> asyncio.Task[FetchResponse]:
            request = in_session(n, epoch, max_wait_ms=60_000)
            task = asyncio.create_task(cluster.call(cluster[1], request))
            await until(lambda: len(cluster[1].replicas.fetches) == 1)
            return task

        waiting = await parked(1)
        await cluster.produce(1, batch("a"))
        assert rows_of(await waiting) == {"t": (0, 1, ["a"])}
        assert rows_of(await cluster.call(cluster[1], in_session(n, 2, ("t", 1)))) == {}
        waiting = await parked(3)
        assert rows_of(await cluster.call(cluster[1], in_session(n, 4))) == {}
        await cluster.produce(1, batch("b"))
        assert (await waiting).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize("incremental", [False, True])
async def test_waiting_fetch_holds_no_records(incremental: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `min_bytes` of megabytes, each of a thousand waiting consumers would hold that much."""
    found: list[weakref.ref[memoryview]] = []
    read = PartitionLog.read

    def watched(log: PartitionLog, *arguments: Any, **options: Any) -> memoryview:
        records = memoryview(read(log, *arguments, **options))
        found.append(weakref.ref(records))
        return records

    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        n = (await cluster.call(cluster[1], in_session(0, 0, ("t", 0)))).session_id if incremental else 0
        await cluster.produce(1, batch("a"))
        monkeypatch.setattr(PartitionLog, "read", watched)
        more: dict[str, Any] = {"max_wait_ms": 60_000, "min_bytes": len(batch("a")) + 1}
        request = in_session(n, 1, **more) if incremental else in_session(0, -1, ("t", 0), **more)
        waiting = asyncio.create_task(cluster.call(cluster[1], request))
        await until(lambda: len(cluster[1].replicas.fetches) == 1)
        assert found and all(one() is None for one in found)
        await cluster.produce(1, batch("b"))
        assert rows_of(await waiting) == {"t": (0, 2, ["a", "b"])}


async def test_incremental_follower_fetch_is_checked_like_a_full_one() -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2), only=(1,))
        life = cluster[2].epoch
        n = 0

        async def report(epoch: int) -> dict[str, tuple[int, int, list[str]]]:
            nonlocal n
            request = in_session(n, epoch, *([("t", 0)] if epoch == 0 else []))
            request.replica_state = ReplicaState(replica_id=2, replica_epoch=life)
            response = await cluster.call(cluster[1], request)
            n = response.session_id
            return rows_of(response)

        follower = cluster.partition(1).followers[2]
        for epoch in range(3):
            await report(epoch)
            assert (follower.log_end_offset, follower.broker_epoch) == (0, life)
        cluster.partition(1).record_fetch(2, -1, 0, life, 0.0)  # somebody else speaks for it
        assert await report(3) == {}
        assert follower.log_end_offset == 0
        cluster.partition(1).record_fetch(2, 0, 0, -1, 0.0)
        assert await report(4) == {}
        assert follower.broker_epoch == life
        cluster[2].epoch += 1  # registered again: this is a report of its earlier life
        await cluster.publish(only=(1,))
        assert await report(5) == {"t": (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, [])}


async def test_incremental_fetch_returns_the_preferred_replica_each_time() -> None:
    async with replica_cluster(2, replica_selector_class=RACK_AWARE) as cluster:
        cluster.racks.update({1: "a", 2: "b"})
        await cluster.lead(1, replicas=(1, 2))
        assert (await cluster.produce(1, batch("a"))).error_code == 0
        n = 0
        for epoch in range(3):
            request = in_session(n, epoch, *([("t", 0)] if epoch == 0 else []), max_wait_ms=60_000)
            request.rack_id = "b"
            response = await cluster.call(cluster[1], request)
            n = response.session_id
            assert [row.preferred_read_replica for topic in response.responses for row in topic.partitions] == [2]


async def test_rows_that_a_quota_removes_from_a_response_are_in_the_next_one() -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        await cluster.produce(1, batch("a"))
        sessions = cluster[1].services.fetch_sessions
        full = in_session(0, 0, ("t", 1))
        response = await cluster.call(cluster[1], full)
        assert sessions.take_back(full, response) == 0 == len(sessions), "the client asks for a session again"
        n = (await cluster.call(cluster[1], in_session(0, 0, ("t", 0)))).session_id
        moved = in_session(n, 1, ("t", 1))
        moved.topics[0].partitions[0].current_leader_epoch = 0
        response = await cluster.call(cluster[1], moved)
        assert rows_of(response) == {"t": (0, 1, [])}
        assert sessions.take_back(moved, response) == n
        assert rows_of(await cluster.call(cluster[1], in_session(n, 2))) == {"t": (0, 1, [])}
        assert rows_of(await cluster.call(cluster[1], in_session(n, 3))) == {}


@pytest.mark.parametrize(("partitions", "steps"), [(PARTITIONS_PER_STEP, 1), (4 * PARTITIONS_PER_STEP, 4)])
async def test_fetch_of_many_partitions_yields_between_its_steps(partitions: int, steps: int) -> None:
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        request = fetch_request(0)
        request.topics[0].partitions *= partitions
        handling = fetch(RequestContext(cluster[1].services, 17, "", UNKNOWN_PEER), request)
        yields = 0
        with pytest.raises(StopIteration) as done:
            while True:
                assert handling.send(None) is None
                yields += 1
        assert yields == steps - 1
        response: FetchResponse = done.value.value
        assert len(response.responses[0].partitions) == partitions
