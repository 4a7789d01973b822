"""Incremental fetches: idle partitions are not read; every change is returned, also to waiting requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch.broker.authorization.authorizer import Authorizer
from anabranch.broker.replication.fetch_reader import FetchReader
from anabranch.broker.replication.fetch_sessions import FetchSession, SessionPartition
from anabranch.broker.replication.replica_selector import RACK_AWARE
from anabranch.broker.storage.producer_state import ProducerStates
from anabranch.protocol.acls import Acl, Operation, Permission, ResourcePattern, ResourceType
from anabranch.protocol.apis.fetch import FetchRequest, FetchResponse, ForgottenTopic, ReplicaState
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import (
    ReplicaCluster,
    batch,
    fetch_request,
    replica_cluster,
    topic_id_of,
    until,
    values,
)

LONG_MS = 60_000
Rows = dict[str, tuple[int, int, list[str]]]


class Asker:
    """A client of broker 1 with access to its fetch session."""

    def __init__(self, cluster: ReplicaCluster, replica: int = -1, **more: Any) -> None:
        self.cluster = cluster
        self.replica = replica
        self.life = cluster.brokers[replica].epoch if replica in cluster.brokers else -1
        self.more = more
        self.id = 0
        self.epoch = 0

    @property
    def session(self) -> FetchSession:
        session: FetchSession = self.cluster[1].services.fetch_sessions._sessions[self.id]
        return session

    @property
    def awake(self) -> list[str]:
        """The partitions that the next request has to read."""
        return sorted(str(name) for name, _ in self.session.changed)

    async def answer(self, forgotten: str = "", **offsets: int) -> FetchResponse:
        """Send a request and return the response."""
        request = fetch_request(0, **{key: value for key, value in self.more.items() if key not in ("named", "rack")})
        named = self.more.get("named", {})
        request.topics = [fetch_request(offset, topic=topic, **named).topics[0] for topic, offset in offsets.items()]
        request.forgotten_topics_data = [ForgottenTopic(topic=topic, partitions=[0]) for topic in forgotten]
        request.max_bytes = self.more.get("max_bytes", 1 << 20)
        request.rack_id = self.more.get("rack", "")
        request.session_id, request.session_epoch = self.id, self.epoch
        request.replica_id = self.replica
        request.replica_state = ReplicaState(replica_id=self.replica, replica_epoch=self.life)
        for topic in request.forgotten_topics_data:
            topic.topic_id = topic_id_of(topic.topic)
        self.epoch += 1
        response: FetchResponse = await self.cluster.call(self.cluster[1], request)
        self.id = response.session_id or self.id
        return response

    async def ask(self, forgotten: str = "", **offsets: int) -> Rows:
        """Return error, high watermark and records."""
        return rows_of(await self.answer(forgotten, **offsets))

    async def waiting(self) -> asyncio.Task[FetchResponse]:
        """A request that waits."""
        self.more["max_wait_ms"] = LONG_MS
        before = len(self.cluster[1].replicas.fetches)
        task = asyncio.create_task(self.answer())
        await until(lambda: len(self.cluster[1].replicas.fetches) > before)
        return task


def rows_of(response: FetchResponse) -> Rows:
    return {
        topic.topic_id.decode().rstrip("-"): (row.error_code, row.high_watermark, values(row.records))
        for topic in response.responses
        for row in topic.partitions
    }


def log_starts(response: FetchResponse) -> list[int]:
    return [row.log_start_offset for topic in response.responses for row in topic.partitions]


def listening(cluster: ReplicaCluster, topic: str) -> int:
    """How many sessions listen to a partition of broker 1."""
    return sum(isinstance(one, SessionPartition) for one in cluster.partition(1, topic).listeners)


@asynccontextmanager
async def at_rest(*, replicas: tuple[int, ...] = (1,), **more: Any) -> AsyncIterator[tuple[ReplicaCluster, Asker]]:
    """A consumer whose session has two partitions with one record each, has read them, and has nothing to be told."""
    async with replica_cluster(max(replicas)) as cluster:
        for topic in "tu":
            await cluster.lead(1, replicas=replicas, topic=topic)
            assert (await cluster.produce(1, batch("a"), topic=topic)).error_code == 0
        asker = Asker(cluster, **more)
        await asker.ask(t=1, u=1)
        assert await asker.ask() == {}
        assert asker.awake == []
        yield cluster, asker


async def test_unchanged_partitions_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    answer = FetchReader._answer

    def answering(self: FetchReader, topic: str | None, *more: Any) -> Any:
        read.append(str(topic))
        return answer(self, topic, *more)

    async with at_rest() as (cluster, asker):
        monkeypatch.setattr(FetchReader, "_answer", answering)
        assert await asker.ask() == {}
        assert read == []
        await cluster.produce(1, batch("b"), topic="u")
        assert await asker.ask() == {"u": (0, 2, ["b"])}
        assert await asker.ask(u=2) == {}
        assert read == ["u", "u"], "with records, and to see that there are no more"
        waiting = await asker.waiting()
        assert (len(read), len(cluster[1].replicas.fetches._watchers)) == (2, 0), "it waits once, not per partition"
        await cluster.produce(1, batch("b"), topic="t")
        assert rows_of(await waiting) == {"t": (0, 2, ["b"])}
        assert read == ["u", "u", "t"]
        another = Asker(cluster)
        await another.ask(t=2, u=2)
        await another.waiting()
        assert len(cluster[1].replicas.fetches._watchers) == 0, "also after it has read them for the first time"


# -- each kind of news, to a request that waits -----------------------------------------------------------------------


async def append(cluster: ReplicaCluster) -> None:
    assert (await cluster.produce(1, batch("b"), topic="u")).error_code == 0


async def begin_an_epoch(cluster: ReplicaCluster) -> None:
    await cluster.lead(1, replicas=(1,), topic="u")


async def lead_elsewhere(cluster: ReplicaCluster) -> None:
    await cluster.start(2)
    await cluster.lead(2, replicas=(1, 2), isr=(1, 2), topic="u")


async def stop(cluster: ReplicaCluster) -> None:
    cluster[1].replicas.stop_replica("u", 0, -1, delete=False)


async def delete(cluster: ReplicaCluster) -> None:
    cluster[1].replicas.stop_replica("u", 0, -2, delete=True)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (append, (0, 2, ["b"])),
        (begin_an_epoch, (ErrorCode.FENCED_LEADER_EPOCH, -1, [])),
        (lead_elsewhere, (ErrorCode.FENCED_LEADER_EPOCH, -1, [])),
        (stop, (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, [])),
        (delete, (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, [])),
    ],
)
async def test_pending_session_fetch_returns_a_change(
    change: Callable[[ReplicaCluster], Awaitable[None]], expected: tuple[int, int, list[str]]
) -> None:
    async with at_rest(named={"epoch": 0}) as (cluster, asker):
        waiting = await asker.waiting()
        await change(cluster)
        assert rows_of(await waiting) == {"u": expected}


async def test_pending_follower_fetch_returns_uncommitted_records() -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2), only=(1,))
        asker = Asker(cluster, 2)
        await asker.ask(t=0)
        assert await asker.ask() == {}
        assert asker.awake == []
        waiting = await asker.waiting()
        await cluster.produce(1, batch("a"), acks=1)
        assert rows_of(await waiting) == {"t": (0, 0, ["a"])}
        asker.more["max_wait_ms"] = 0
        assert await asker.ask(t=1) == {"t": (0, 1, [])}, "its own report has committed it"
        assert await asker.ask() == {}
        assert asker.awake == []


async def test_consumer_of_a_follower_receives_the_advanced_high_watermark() -> None:
    async with replica_cluster(2) as cluster:
        for leader in (1, 2):
            await cluster.lead(leader, replicas=(1, 2))
        await cluster.produce(2, batch("a"))
        await until(lambda: cluster.partition(1).high_watermark == 1)
        asker = Asker(cluster)
        await asker.ask(t=1)
        assert await asker.ask() == {}
        assert asker.awake == []
        waiting = await asker.waiting()
        await cluster.produce(2, batch("b"))
        assert rows_of(await waiting) == {"t": (0, 2, ["b"])}


async def test_min_bytes_is_counted_over_all_partitions() -> None:
    async with at_rest() as (cluster, asker):
        asker.more["min_bytes"] = len(batch("b")) + 1
        waiting = await asker.waiting()
        await cluster.produce(1, batch("b"), topic="t")
        assert not waiting.done() and asker.awake == [str(topic_id_of("t"))]
        await cluster.produce(1, batch("b"), topic="u")
        assert rows_of(await waiting) == {"t": (0, 2, ["b"]), "u": (0, 2, ["b"])}


async def test_ended_transaction_completes_a_read_committed_session_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    async with at_rest(isolation_level=1) as (cluster, asker):
        open_since: list[int] = [1]
        monkeypatch.setattr(ProducerStates, "first_unstable_offset", lambda *_: min(open_since, default=None))
        await cluster.produce(1, batch("b"), topic="u")
        assert await asker.ask() == {"u": (0, 2, [])}, "the high watermark alone"
        assert asker.awake == []
        waiting = await asker.waiting()
        open_since.clear()
        await cluster.produce(1, batch("c"), topic="u")
        assert rows_of(await waiting) == {"u": (0, 3, ["b", "c"])}


# -- news that nobody is woken for ------------------------------------------------------------------------------------


async def test_changed_log_start_is_in_the_next_response() -> None:
    async with at_rest() as (cluster, asker):
        cluster.partition(1, "u").delete_records_before(1)
        assert asker.awake == [str(topic_id_of("u"))]
        assert await asker.ask() == {"u": (0, 1, [])}
        assert await asker.ask() == {}
        assert asker.awake == []


async def test_truncated_log_returns_offset_out_of_range_each_time() -> None:
    async with at_rest() as (cluster, asker):
        cluster.partition(1, "u").truncate_to(0)
        assert await asker.ask() == {"u": (ErrorCode.OFFSET_OUT_OF_RANGE, -1, [])}
        assert await asker.ask() == {"u": (ErrorCode.OFFSET_OUT_OF_RANGE, -1, [])}, "an error is told each time"


async def test_log_started_over_returns_offset_out_of_range() -> None:
    async with at_rest() as (cluster, asker):
        cluster.partition(1, "u").start_over_at(7)
        assert await asker.ask() == {"u": (ErrorCode.OFFSET_OUT_OF_RANGE, -1, [])}


async def test_log_moved_to_another_directory_is_tracked() -> None:
    async with at_rest() as (cluster, asker):
        partition = cluster.partition(1, "u")
        partition.move_to(partition.log)
        assert asker.awake == [str(topic_id_of("u"))], "where it is now may not be the same"
        assert await asker.ask() == {}
        assert asker.awake == []


async def test_rack_added_to_a_session_returns_the_preferred_replica() -> None:
    async with replica_cluster(2, replica_selector_class=RACK_AWARE) as cluster:
        cluster.racks.update({1: "a", 2: "b"})
        await cluster.lead(1, replicas=(1, 2))
        await cluster.produce(1, batch("a"))
        asker = Asker(cluster)
        await asker.ask(t=1)

        async def sent_to(rack: str) -> list[int]:
            asker.more["rack"] = rack
            return [row.preferred_read_replica for one in (await asker.answer()).responses for row in one.partitions]

        assert (await sent_to(""), asker.awake) == ([], [])
        assert (await sent_to("c"), asker.awake) == ([], [])
        assert (await sent_to("b"), await sent_to("b")) == ([2], [2])
        assert (await sent_to("c"), asker.awake) == ([], [])
        cluster.racks[2] = "c"
        await cluster.publish()
        assert await sent_to("c") == [2]


@pytest.mark.parametrize("change", [{"isolation_level": 1}, {"replica": 2}])
async def test_changed_session_parameters_read_every_partition(change: dict[str, Any]) -> None:
    async with at_rest(replicas=(1, 2)) as (cluster, asker):
        asker.replica = change.get("replica", -1)
        asker.more.update({key: value for key, value in change.items() if key != "replica"})
        before = asker.session.owner
        await asker.ask()
        assert asker.session.owner != before
        del cluster


async def test_requested_partition_is_read_without_a_change() -> None:
    async with at_rest() as (cluster, asker):
        assert await asker.ask(u=0) == {"u": (0, 1, ["a"])}
        assert [listening(cluster, topic) for topic in "tu"] == [1, 0]
        assert asker.awake == [str(topic_id_of("u"))]


async def test_partition_beyond_max_bytes_is_read_first_in_the_next_response() -> None:
    async with at_rest() as (cluster, asker):
        for topic in "tu":
            await cluster.produce(1, batch("b"), topic=topic)
        asker.more["max_bytes"] = 1
        assert await asker.ask() == {"t": (0, 2, ["b"]), "u": (0, 2, [])}
        assert len(asker.awake) == 2, "there are records for both"
        assert await asker.ask() == {"u": (0, 2, ["b"])}
        assert await asker.ask(u=2) == {"t": (0, 2, ["b"])}


# -- what a session ends with -----------------------------------------------------------------------------------------


async def test_forgotten_partition_is_not_tracked() -> None:
    async with at_rest() as (cluster, asker):
        assert listening(cluster, "u") == 1
        assert await asker.ask("u") == {}
        assert listening(cluster, "u") == 0
        waiting = await asker.waiting()
        await cluster.produce(1, batch("b"), topic="u")
        await cluster.produce(1, batch("b"), topic="t")
        assert rows_of(await waiting) == {"t": (0, 2, ["b"])}


async def test_closed_session_tracks_no_partition_and_completes_its_request() -> None:
    async with at_rest() as (cluster, asker):
        waiting = await asker.waiting()
        cluster[1].services.fetch_sessions.close(asker.id)
        assert (await waiting).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert [listening(cluster, topic) for topic in "tu"] == [0, 0]


async def test_superseded_request_fails_and_leaves_changes_to_its_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with at_rest() as (cluster, asker):
        asker.more["min_bytes"] = len(batch("b")) + 1
        await cluster.produce(1, batch("b"), topic="t")
        old = await asker.waiting()
        read: list[str] = []
        answer = FetchReader._answer
        monkeypatch.setattr(FetchReader, "_answer", lambda *given: read.append(str(given[1])) or answer(*given))
        new = asyncio.create_task(asker.answer())
        assert (await old).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        await until(lambda: len(cluster[1].replicas.fetches) == 1)
        assert read == ["t"], "by the new one"
        await cluster.produce(1, batch("b"), topic="u")
        assert rows_of(await new) == {"t": (0, 2, ["b"]), "u": (0, 2, ["b"])}


async def test_diverging_epoch_is_returned_each_time() -> None:
    async with at_rest() as (cluster, asker):
        await cluster.lead(1, replicas=(1,), topic="u")
        await cluster.produce(1, batch("b"), topic="u")
        asker.more["named"] = {"last_epoch": 0}
        for offsets in ({"u": 2}, {}):
            (topic,) = (await asker.answer(**offsets)).responses
            ended = topic.partitions[0].diverging_epoch
            assert (ended.epoch, ended.end_offset) == (0, 1)


async def test_cancelled_request_leaves_changes_to_the_next_one() -> None:
    async with at_rest() as (cluster, asker):
        waiting = await asker.waiting()
        waiting.cancel()
        await until(lambda: len(cluster[1].replicas.fetches) == 0)
        await cluster.produce(1, batch("b"), topic="u")
        asker.more["max_wait_ms"] = 0
        assert await asker.ask() == {"u": (0, 2, ["b"])}


# -- what a follower's silence says -----------------------------------------------------------------------------------


@asynccontextmanager
async def follower_at_rest() -> AsyncIterator[tuple[ReplicaCluster, Asker]]:
    """Broker 2 is simulated, and has all records."""
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2), only=(1,))
        asker = Asker(cluster, 2)
        await asker.ask(t=0)
        assert await asker.ask() == {}
        assert asker.awake == []
        yield cluster, asker


async def test_resting_follower_with_recent_fetch_is_in_sync_at_the_next_append() -> None:
    async with follower_at_rest() as (cluster, asker):
        partition = cluster.partition(1)
        follower = partition.followers[2]
        noted = follower.caught_up_ms
        await until(lambda: cluster[1].replicas.now_ms() > noted + 5)
        await asker.ask()
        seen = follower.seen_caught_up_ms
        assert seen > noted + 5 and follower.caught_up_ms == noted, "said once, for all partitions at rest"
        await cluster.produce(1, batch("a"), acks=1)
        assert (follower.caught_up_ms, follower.last_fetch_ms, follower.leader_end_at_last_fetch) == (seen, seen, 0)
        asker.session.presence.seen_ms = seen + 1e9
        assert follower.seen_caught_up_ms == seen, "who asks without naming what came has not got it"


async def test_follower_removed_from_the_isr_rejoins_by_empty_incremental_fetches() -> None:
    async with follower_at_rest() as (cluster, asker):
        partition, replicas = cluster.partition(1), cluster[1].replicas
        change = partition._propose((1,), cluster[1].epoch)
        replicas.isr_changes.submit(partition, change)
        await until(lambda: partition.isr == (1,))
        assert await asker.ask() == {}
        await until(lambda: partition.isr == (1, 2))


async def test_every_follower_fetch_is_recorded_while_records_are_uncommitted() -> None:
    async with follower_at_rest() as (cluster, asker):
        partition = cluster.partition(1)
        partition.require_in_sync(3)
        partition.replicas = (1, 2, 3)
        await cluster.produce(1, batch("a"), acks=1)
        await asker.ask(t=1)
        assert (partition.high_watermark, asker.awake) == (0, [str(topic_id_of("t"))])
        partition.require_in_sync(1)
        await asker.ask()
        assert (partition.high_watermark, asker.awake) == (1, [])


async def test_changed_follower_epoch_records_every_partition_again() -> None:
    async with follower_at_rest() as (cluster, asker):
        asker.life += 1
        assert await asker.ask() == {}
        assert cluster.partition(1).followers[2].broker_epoch == asker.life
        cluster[2].epoch += 2
        await cluster.publish(only=(1,))
        assert await asker.ask() == {"t": (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, [])}


async def test_offset_recorded_by_another_request_is_corrected() -> None:
    async with follower_at_rest() as (cluster, asker):
        cluster.partition(1).record_fetch(2, -1, 0, asker.life, 0.0)
        assert await asker.ask() == {}
        assert cluster.partition(1).followers[2].log_end_offset == 0


async def test_revoked_right_is_returned_for_an_idle_partition() -> None:
    topic, everyone = ResourcePattern(ResourceType.TOPIC, "t"), Acl("User:*", "*", Operation.READ, Permission.ALLOW)
    async with replica_cluster(1) as cluster:
        await cluster.lead(1, replicas=(1,))
        rights = Authorizer()
        object.__setattr__(cluster[1].services, "authorizer", rights)
        rights.replace(topic, [everyone])
        asker = Asker(cluster)
        assert await asker.ask(t=0) == {"t": (0, 0, [])}
        assert await asker.ask() == {}
        assert not asker.awake
        rights.replace(topic, [])
        assert await asker.ask() == {"t": (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, [])}
        rights.replace(topic, [everyone])
        assert await asker.ask() == {"t": (0, 0, [])}
        assert await asker.ask() == {}
        assert not asker.awake


# -- requests with so many partitions that they are read in steps -----------------------------------------------------


@pytest.fixture
def after_first_step(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Reads take a step for each partition, and run these actions between the first two."""
    actions: list[Callable[[], object]] = []
    answer = FetchReader._answer

    def answering(self: FetchReader, *more: Any) -> Any:
        while actions:
            asyncio.get_running_loop().call_soon(actions.pop())
        return answer(self, *more)

    for module in ("fetch_reader", "session_fetch_reader"):
        monkeypatch.setattr(f"anabranch.broker.replication.{module}.PARTITIONS_PER_STEP", 1)
    monkeypatch.setattr(FetchReader, "_answer", answering)
    return actions


def append_now(cluster: ReplicaCluster, topic: str) -> None:
    replicas = cluster[1].replicas
    replicas.append_local(replicas.partition(topic, 0), batch("b"), acks=1, generation=None)


@pytest.mark.parametrize("incremental", [False, True])
async def test_long_fetch_does_not_wait_for_a_change_between_its_steps(
    incremental: bool, after_first_step: list[Callable[[], object]]
) -> None:
    async with at_rest() as (cluster, asker), asyncio.timeout(20):
        after_first_step.append(lambda: append_now(cluster, "t"))
        asking = asker if incremental else Asker(cluster)
        asking.more["max_wait_ms"] = LONG_MS
        fetched = await asking.ask(t=1, u=1)
        if not incremental:
            assert fetched.pop("u") == (0, 1, [])
        assert fetched == {"t": (0, 2, ["b"])}
        assert not after_first_step


async def test_long_fetch_reads_a_partition_that_was_deleted_and_created_again_between_its_steps(
    after_first_step: list[Callable[[], object]],
) -> None:
    async with at_rest() as (cluster, _):
        replicas = cluster[1].replicas
        after_first_step.append(lambda: setattr(replicas, "name_of", lambda topic_id: None))
        fetched = await Asker(cluster).ask(t=1, u=1)
        del replicas.name_of
        assert fetched == {"t": (0, 1, []), "u": (ErrorCode.UNKNOWN_TOPIC_ID, -1, [])}


async def test_row_that_is_outdated_when_a_long_response_is_sent_is_in_the_next_one(
    after_first_step: list[Callable[[], object]],
) -> None:
    async with at_rest() as (cluster, asker):
        await cluster.produce(1, batch("b"), topic="t")
        await asker.ask(t=2, u=1)
        log = cluster.partition(1, "t").log
        log.increment_log_start_offset(1)
        after_first_step.append(lambda: log.increment_log_start_offset(2))
        assert log_starts(await asker.answer(t=2, u=1)) == [1]
        assert log_starts(await asker.answer()) == [2]
        assert await asker.ask() == {}


async def test_request_that_overtakes_a_long_fetch_ends_it(after_first_step: list[Callable[[], object]]) -> None:
    async with at_rest() as (cluster, asker), asyncio.timeout(20):
        asker.more["max_wait_ms"] = LONG_MS
        later = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=asker.id, session_epoch=asker.epoch + 1, topics=[])
        sessions = cluster[1].services.fetch_sessions
        after_first_step.append(lambda: sessions.admit(later, by_id=True, now_ms=0))
        overtaken = await asker.answer(t=1, u=1)
        assert (overtaken.error_code, overtaken.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
        assert len(cluster[1].replicas.fetches) == 0
