"""The follower's loop: partitions that come, go, wait and are moved; clusters whose logs diverge."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.replication.follower_session import Following, SessionEntry
from anabranch.broker.replication.partition import Partition
from anabranch.broker.replication.replica_fetcher import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Fetcher
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.log_append import append_as_leader
from anabranch.broker.tasks.supervised_task import FatalNodeError
from anabranch.clients.connection import Connection
from anabranch.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
)
from anabranch.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.wire import ZERO_UUID
from tests.broker.replication.partitions import TOPIC_ID, fetched_row, follower
from tests.broker.replication.replica_cluster import Assigned, batch, log_values, replica_cluster, until
from tests.clients.peer import serve


async def test_list_offsets_response_without_rows_is_no_bug() -> None:
    bugs: list[FatalNodeError] = []

    async def respond(_: Any) -> ListOffsetsResponse:
        return ListOffsetsResponse(topics=[])

    async with serve(respond) as peer:
        connection = await Connection.open("127.0.0.1", peer.port, client_id="test")
        one = Fetcher(
            2,
            BrokerSettings(),
            address=lambda: None,
            broker_epoch=lambda: 1,
            progressed=lambda _: None,
            died=bugs.append,
        )
        with pytest.raises(ConnectionError, match="a response without"):
            await one._realign(connection, Following(follower((1, 3)), 9))
        await one.close()
        await connection.close()
    assert not bugs


@pytest.mark.parametrize("address", [("a..b", 9092), ("127.0.0.1", 70000)])
async def test_fetcher_with_invalid_leader_address_retries(address: tuple[str, int]) -> None:
    """LeaderAndIsr may name any address; the fetcher retries until a later one is right."""
    bugs: list[FatalNodeError] = []
    addresses = [address] * 3
    fetched = asyncio.Event()

    def died(bug: FatalNodeError) -> None:
        bugs.append(bug)
        fetched.set()

    async def respond(request: Any) -> FetchResponse:
        fetched.set()
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])

    async with serve(respond) as peer:
        one = Fetcher(
            2,
            BrokerSettings(),
            address=lambda: addresses.pop() if addresses else ("127.0.0.1", peer.port),
            broker_epoch=lambda: 1,
            progressed=lambda _: None,
            died=died,
        )
        one.follow(follower((1, 3)))
        one.begin()
        async with asyncio.timeout(30):
            await fetched.wait()
        await one.close()
    assert not bugs


async def test_new_partition_is_fetched_during_a_long_poll() -> None:
    async with replica_cluster(2, replica_fetch_wait_max_ms=60_000) as cluster:
        await cluster.lead(1, replicas=(1, 2))
        await until(lambda: len(cluster[1].replicas.fetches) == 1)
        await cluster.lead(1, replicas=(1, 2), topic="u")
        assert (await cluster.produce(1, batch("a"), topic="u")).error_code == 0
        assert (await cluster.produce(1, batch("b"))).error_code == 0


async def test_new_partition_does_not_repeat_the_others_in_the_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fetch must not repeat all partitions, and existing fetches must not wait. Counts the named partitions once
    the new leader is known.
    """
    async with replica_cluster(2, replica_fetch_wait_max_ms=60_000) as cluster:
        for index in range(100):
            cluster.assigned["t", index] = Assigned((1, 2), 1, 0, (1, 2))
        await cluster.publish()
        for broker in (cluster[1], cluster[2]):
            request = cluster.leader_and_isr("t", 0)
            for index in range(1, 100):
                rows = cluster.leader_and_isr("t", index).topic_states[0].partition_states
                request.topic_states[0].partition_states += rows
            await cluster.call(broker, request)
        await until(lambda: len(cluster[1].replicas.fetches) == 1)
        from_1 = cluster[2].replicas.fetchers._by_leader[1]
        connection, named = from_1._connection, []
        sent = Connection.call

        async def call(self: Connection, request: Any, **more: Any) -> Any:
            if isinstance(request, FetchRequest):
                named.append([(topic.topic, row.partition) for topic in request.topics for row in topic.partitions])
            return await sent(self, request, **more)

        monkeypatch.setattr(Connection, "call", call)
        await cluster.lead(1, replicas=(1, 2), topic="u")
        assert (await cluster.produce(1, batch("a"), topic="u")).error_code == 0
        assert named[0] == [("u", 0)], "by itself, at once"
        assert (await cluster.produce(1, batch("b"))).error_code == 0
        await until(lambda: from_1._entrance is not None and not len(from_1._entrance))
        assert (await cluster.produce(1, batch("c"), topic="u")).error_code == 0
        assert from_1._connection is connection
        assert all(set(one) <= {("u", 0), ("t", 0)} for one in named), "what has changed, and nothing else"
        assert len(cluster[1].services.fetch_sessions) == 1
        assert log_values(cluster.partition(2, "u")) == ["a", "c"]


async def test_second_new_partition_is_fetched_during_the_long_poll_of_the_first() -> None:
    async with replica_cluster(2, replica_fetch_wait_max_ms=60_000) as cluster:
        await cluster.lead(1, replicas=(1, 2))
        await until(lambda: len(cluster[1].replicas.fetches) == 1)
        for topic in ("u", "v"):
            await cluster.lead(1, replicas=(1, 2), topic=topic)
            assert (await cluster.produce(1, batch("a"), topic=topic)).error_code == 0
            await until(lambda: len(cluster[1].replicas.fetches) >= 2)
        fetcher = cluster[2].replicas.fetchers._by_leader[1]
        assert len(fetcher) == 3


def idle_fetcher(progressed: Callable[[Partition], object] = lambda _: None) -> Fetcher:
    """One that knows no address, so nothing happens by itself."""
    return Fetcher(
        2,
        BrokerSettings(),
        address=lambda: None,
        broker_epoch=lambda: 1,
        progressed=progressed,
        died=lambda _: None,
    )


def fetch_response(**fields: object) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[fetched_row(**fields)])])  # type: ignore[arg-type]


async def test_forgotten_transferred_or_fenced_partition_is_not_fetched() -> None:
    one, other = idle_fetcher(), idle_fetcher()
    partition = follower((1, 3))
    following = Following(partition, 9)
    one.apply_response({partition: following})
    assert len(one._session) == 1
    one.forget(partition)
    assert len(one._session) == 0
    one.apply_response({partition: following})
    other.apply_response(one.remove_partition())
    assert (len(one._session), len(other._session)) == (0, 1)
    other._take_all(fetch_response(code=ErrorCode.FENCED_LEADER_EPOCH), {(TOPIC_ID, 0): SessionEntry(following, 3)})
    assert (following.fenced, len(other), len(other._session)) == (True, 1, 0)
    one.apply_response(other.remove_partition())
    assert len(one._session) == 0, "fenced wherever it is"
    await one.close()
    await other.close()


async def test_partition_in_backoff_is_fetched_when_due_by_its_current_fetcher() -> None:
    one, other = idle_fetcher(), idle_fetcher()
    partition = follower((1, 3))
    following = Following(partition, 9)
    entries = {(TOPIC_ID, 0): SessionEntry(following, 3)}
    one.apply_response({partition: following})
    one._take_all(fetch_response(code=ErrorCode.NOT_LEADER_OR_FOLLOWER), entries)
    due = following.resume_ms
    assert (len(one._session), one._resume(due - 1)) == (0, due)
    other.apply_response(one.remove_partition())
    assert one._resume(due) is None and len(one._session) == 0
    assert (len(other._session), other._resume(due - 1)) == (0, due)
    assert (other._resume(due), len(other._session)) == (None, 1)
    other._take_all(fetch_response(code=ErrorCode.NOT_LEADER_OR_FOLLOWER), entries)
    other.forget(partition)
    assert other._resume(1e18) is None and len(other._session) == 0
    other._postpone(following)
    assert other._resume(1e18) is None and len(other._session) == 0, "it was forgotten while it was asked about"
    await one.close()
    await other.close()


async def test_response_after_a_partition_was_transferred_is_ignored() -> None:
    partition = follower((1, 3))
    following = Following(partition, 9)
    one = idle_fetcher()
    response = FetchResponse(
        responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[fetched_row(high_watermark=2)])]
    )
    entries = {(TOPIC_ID, 0): SessionEntry(following, 3)}
    one.apply_response({partition: following})
    assert one.remove_partition() == {partition: following}
    one._take_all(response, entries)
    assert partition.high_watermark == 0
    one.apply_response({partition: following})
    one._take_all(response, entries)
    assert partition.high_watermark == 2
    await one.close()


async def test_bounds_of_the_leader_do_not_count_after_a_transfer() -> None:
    """The fetcher that took the partition over has fetched records that the leader has appended since."""
    partition = follower((1, 3))
    following = Following(partition, 9)
    one = idle_fetcher()
    one.apply_response({partition: following})

    async def respond(request: Any) -> ListOffsetsResponse:
        asked = request.topics[0].partitions[0]
        if asked.timestamp == LATEST_TIMESTAMP:
            one.remove_partition()
            append_as_leader(partition.log, batch("v"), leader_epoch=9, now_ms=1)
        offset = 0 if asked.timestamp == EARLIEST_TIMESTAMP else 2
        row = ListOffsetsPartitionResponse(partition_index=0, error_code=ErrorCode.NONE, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])

    async with serve(respond) as peer:
        connection = await Connection.open("127.0.0.1", peer.port, client_id="test")
        await one._realign(connection, following)
        await connection.close()
    assert partition.log.log_end_offset == 4
    await one.close()


@pytest.mark.parametrize(("bounds", "end"), [((0, 1), 1), ((7, 9), 7)])
async def test_log_moved_into_the_bounds_of_the_leader_is_reported(bounds: tuple[int, int], end: int) -> None:
    """Consumers read from followers, and may wait for offsets that are gone."""
    partition, progressed = follower((1, 3)), list[object]()
    following = Following(partition, 9)
    one = idle_fetcher(progressed.append)
    one.apply_response({partition: following})

    async def respond(request: Any) -> ListOffsetsResponse:
        offset = bounds[request.topics[0].partitions[0].timestamp == LATEST_TIMESTAMP]
        row = ListOffsetsPartitionResponse(partition_index=0, error_code=ErrorCode.NONE, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])

    async with serve(respond) as peer:
        connection = await Connection.open("127.0.0.1", peer.port, client_id="test")
        await one._realign(connection, following)
        await connection.close()
    assert (partition.log.log_end_offset, progressed) == (end, [partition])
    await one.close()


@pytest.mark.parametrize("lost", [["lost 1"], ["lost 1", "lost 2", "lost 3"]])
@pytest.mark.parametrize("kept", [["kept 1"], ["kept 1", "kept 2"]])
async def test_divergent_tail_is_truncated_to_the_new_leaders_log(lost: list[str], kept: list[str]) -> None:
    async with replica_cluster() as cluster:
        await cluster.lead(1)
        assert (await cluster.produce(1, batch("committed"))).error_code == 0
        # The leader goes on alone: its followers hear of a new leader first.
        cluster.assigned["t", 0].isr = (2, 3)
        await cluster.lead(2, isr=(2, 3), only=(2, 3))
        await until(lambda: cluster.partition(3).leader_id == 2)
        for value in lost:
            assert (await cluster.produce(1, batch(value), acks=1)).error_code == 0
        for value in kept:
            assert (await cluster.produce(2, batch(value))).error_code == 0
        assert log_values(cluster.partition(1)) == ["committed", *lost]
        # Now the old leader hears of it too, and follows.
        await cluster.tell("t", 0, only=(1,))
        await until(lambda: log_values(cluster.partition(1)) == ["committed", *kept])
        assert cluster.partition(1).log.epochs.entries == cluster.partition(2).log.epochs.entries
        await until(lambda: 1 in cluster.partition(2).isr)


async def test_disk_that_refuses_a_truncation_does_not_stop_the_replication_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    truncated = PartitionLog.truncate_to
    tried = 0

    def refuse(log: PartitionLog, offset: int) -> bool:
        nonlocal tried
        tried += 1
        raise OSError(errno.EROFS, "read-only file system")

    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2))
        await cluster.produce(1, batch("committed"))
        await cluster.lead(2, only=(2,))
        assert (await cluster.produce(2, batch("lost"), acks=1)).error_code == 0
        monkeypatch.setattr(PartitionLog, "truncate_to", refuse)
        await cluster.lead(1)
        assert (await cluster.produce(1, batch("kept"), acks=1)).error_code == 0
        await until(lambda: tried > 0)
        await cluster.lead(1, replicas=(1, 2), topic="u")
        for value in "abc":
            assert (await cluster.produce(1, batch(value), topic="u", timeout_ms=5000)).error_code == 0
        assert log_values(cluster.partition(2, "u")) == ["a", "b", "c"]
        monkeypatch.setattr(PartitionLog, "truncate_to", truncated)
        await until(lambda: log_values(cluster.partition(2)) == ["committed", "kept"])


async def test_topics_without_id_are_fetched_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller may have given them none."""
    monkeypatch.setattr("tests.broker.replication.replica_cluster.topic_id_of", lambda _: ZERO_UUID)
    async with replica_cluster(2) as cluster:
        for topic in ("t", "u"):
            await cluster.lead(1, replicas=(1, 2), topic=topic)
        for topic in ("t", "u"):
            assert (await cluster.produce(1, batch(topic), topic=topic, timeout_ms=5000)).error_code == 0
            assert log_values(cluster.partition(2, topic)) == [topic]


async def test_follower_with_an_empty_epoch_agrees_with_the_new_leader() -> None:
    async with replica_cluster() as cluster:
        await cluster.lead(1)
        await cluster.produce(1, batch("a"))
        await cluster.lead(1, only=(1,))  # epoch 1 begins on broker 1 alone, and writes nothing
        assert cluster.partition(1).log.epochs.latest_epoch == 1
        await cluster.lead(2, isr=(2, 3))
        assert (await cluster.produce(2, batch("b"))).error_code == 0
        await until(lambda: log_values(cluster.partition(1)) == ["a", "b"])
        assert cluster.partition(1).log.epochs.latest_epoch == 2


async def test_new_replica_starts_at_the_leaders_log_start() -> None:
    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1,))
        for number in range(5):
            await cluster.produce(1, batch(f"{number}"))
        cluster.partition(1).log.increment_log_start_offset(3)
        await cluster.lead(1, replicas=(1, 2), isr=(1,))
        await until(lambda: cluster.assigned["t", 0].isr == (1, 2))
        log = cluster.partition(2).log
        assert (log.log_start_offset, log.log_end_offset) == (3, 5)
        assert log_values(cluster.partition(2)) == ["3", "4"]
