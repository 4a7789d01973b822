"""A follower's fetch requests, and its restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.replication.follower_session import FollowerSession, Following, SessionEntry
from anabranch.broker.replication.partition import Partition, ReplicaRules
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.log_append import append_as_leader
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.clients.connection import Connection
from anabranch.protocol.apis.fetch import FetchRequest, FetchResponse
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.wire import ZERO_UUID
from tests.broker.replication.replica_cluster import batch, log_values, replica_cluster, until

ID = b"0123456789abcdef"


def following(index: int) -> Following:
    log = PartitionLog.open(MemoryFiles(), f"t-{index}", LogSettings(), 0)
    return Following(Partition("t", index, ID, log, ReplicaRules(1)), 4)


class Asking:
    """A session in use."""

    def __init__(self, *partitions: Following) -> None:
        self.session = FollowerSession()
        for one in partitions:
            self.session.add(one)

    def ask(self, *, by_id: bool = True) -> FetchRequest:
        return self.session.request(BrokerSettings(node_id=1), by_id=by_id, broker_epoch=7, max_wait_ms=5)

    def hear(self, code: ErrorCode = ErrorCode.NONE, session_id: int = 77) -> bool:
        return self.session.handle_response(FetchResponse(error_code=code, session_id=session_id, responses=[]))


def indexes(request: FetchRequest) -> list[int]:
    return [one.partition for topic in request.topics for one in topic.partitions]


def state(request: FetchRequest) -> tuple[int, int, list[int]]:
    return request.session_id, request.session_epoch, indexes(request)


def test_incremental_request_has_changed_partitions_only() -> None:
    first, second = following(0), following(1)
    asking = Asking(first, second)
    assert state(asking.ask()) == (0, 0, [0, 1])
    assert asking.hear()
    assert state(asking.ask()) == (77, 1, [])
    assert asking.hear()
    append_as_leader(second.partition.log, batch("v"), leader_epoch=4, now_ms=1)
    request = asking.ask()
    assert state(request) == (77, 2, [1])
    assert request.topics[0].partitions[0].fetch_offset == 1
    assert {position: one.fetch_offset for position, one in asking.session.requested.items()} == {
        (ID, 0): 0,
        (ID, 1): 1,
    }
    assert asking.hear()
    for one in (first, second):
        asking.session.remove(one)
    for one in (Following(first.partition, 5), following(2)):
        asking.session.add(one)
    request = asking.ask()
    assert state(request) == (77, 3, [0, 2]), "a new leader epoch is another question"
    assert [(one.topic_id, one.partitions) for one in request.forgotten_topics_data] == [(ID, [1])]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda log: append_as_leader(log, batch("v"), leader_epoch=4, now_ms=1), (2, 4, 0)),
        (lambda log: log.truncate_to(0), (0, -1, 0)),
        (lambda log: log.increment_log_start_offset(1), (1, 4, 1)),
        (lambda log: log.truncate_fully_and_start_at(9), (9, -1, 9)),
    ],
)
def test_every_change_of_the_fetch_state_is_in_the_request(
    change: Callable[[PartitionLog], object], named: tuple[int, int, int]
) -> None:
    first, second = following(0), following(1)
    for one in (first, second):
        append_as_leader(one.partition.log, batch("v"), leader_epoch=4, now_ms=1)
    asking = Asking(first, second)
    for request in (asking.ask(), asking.ask()):
        assert indexes(request) == ([0, 1] if request.session_epoch == 0 else [])
        assert asking.hear()
    change(second.partition.log)
    request = asking.ask()
    assert indexes(request) == [1]
    (row,) = request.topics[0].partitions
    assert (row.fetch_offset, row.last_fetched_epoch, row.log_start_offset) == named
    assert asking.hear()
    assert indexes(asking.ask()) == []


def test_unrelated_change_is_not_in_the_request() -> None:
    one = following(0)
    append_as_leader(one.partition.log, batch("v"), leader_epoch=4, now_ms=1)
    asking = Asking(one)
    asking.ask()
    asking.hear()
    assert one.partition.follow_high_watermark(1)
    assert list(asking.session._changed) == [one]
    assert indexes(asking.ask()) == []
    assert list(asking.session._changed) == []


def test_unchanged_partitions_are_not_visited(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = Asking(*(following(index) for index in range(5)))
    asking.ask()
    asking.hear()
    looked: list[Following] = []
    monkeypatch.setattr(SessionEntry, "holds", lambda self, one: looked.append(one))
    assert indexes(asking.ask()) == []
    assert looked == []


def test_removed_partition_is_not_tracked_and_can_be_added_again() -> None:
    first, second = following(0), following(1)
    asking = Asking(first, second)
    asking.ask()
    asking.hear()
    second.on_change()
    asking.session.remove(second)
    assert second.partition.listeners == {} and len(asking.session) == 1
    second.on_change()
    request = asking.ask()
    assert (indexes(request), [one.partitions for one in request.forgotten_topics_data]) == ([], [[1]])
    asking.hear()
    asking.session.add(second)
    request = asking.ask()
    assert (indexes(request), request.forgotten_topics_data) == ([1], [])
    asking.hear()
    asking.session.remove(second)
    asking.session.add(second)
    request = asking.ask()
    assert (indexes(request), request.forgotten_topics_data) == ([1], []), "named anew, not forgotten"
    asking.hear()
    request = asking.ask()
    assert (indexes(request), request.forgotten_topics_data) == ([], [])


def test_partitions_without_topic_id_are_counted() -> None:
    one = following(0)
    one.partition.topic_id = ZERO_UUID
    session = FollowerSession()
    for _ in range(2):
        session.add(one)
    assert session.without_id == 1
    for _ in range(2):
        session.remove(one)
    assert session.without_id == 0


def test_without_a_session_every_request_is_full() -> None:
    asking = Asking(following(0))
    for _ in range(2):
        assert state(asking.ask()) == (0, 0, [0])
        assert asking.hear(session_id=0)


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 77),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 77),
    ],
)
def test_refused_session_is_replaced_by_a_full_request(code: ErrorCode, session_id: int) -> None:
    asking = Asking(following(0))
    asking.ask()
    asking.hear()
    asking.ask()
    assert asking.hear(code, 0) is False
    assert state(asking.ask()) == (session_id, 0, [0])
    with pytest.raises(KafkaError):
        asking.hear(code, 0)


def test_lost_connection_or_changed_topic_form_causes_a_full_request() -> None:
    asking = Asking(following(0))
    asking.ask()
    asking.hear()
    asking.session.restart()
    assert state(asking.ask()) == (77, 0, [0])
    asking.hear(session_id=78)
    assert state(asking.ask(by_id=False)) == (78, 0, [0])
    assert list(asking.session.requested) == [("t", 0)]


async def test_followers_use_sessions_and_recover_from_a_lost_one() -> None:
    async with replica_cluster(2, replica_fetch_wait_max_ms=20) as cluster:
        for topic in ("t", "u"):
            await cluster.lead(1, replicas=(1, 2), topic=topic)
            assert (await cluster.produce(1, batch("a"), topic=topic)).error_code == 0
        sessions = cluster[1].services.fetch_sessions
        await until(lambda: len(sessions) == 1)
        (session,) = sessions._sessions.values()
        await until(lambda: session.epoch > 2)
        assert session.is_follower
        await until(lambda: len(session.partitions) == 2)
        sessions.close(session.id)
        assert (await cluster.produce(1, batch("b"))).error_code == 0
        assert log_values(cluster.partition(2)) == ["a", "b"]
        await until(lambda: len(sessions) == 1)


async def test_lost_request_is_repeated(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    sent = Connection.call
    lost: list[FetchRequest] = []

    async def call(self: Connection, request: Any, **more: Any) -> Any:
        if isinstance(request, FetchRequest) and request.session_epoch > 0 and request.topics and not lost:
            lost.append(request)
            raise ConnectionError("lost on the way")
        return await sent(self, request, **more)

    async with replica_cluster(2) as cluster:
        await cluster.lead(1, replicas=(1, 2))
        monkeypatch.setattr(Connection, "call", call)
        for value in "abc":
            assert (await cluster.produce(1, batch(value))).error_code == 0
        assert log_values(cluster.partition(2)) == ["a", "b", "c"]
        assert len(lost) == 1
        assert len(cluster[1].services.fetch_sessions) == 1, "the new one has replaced the old one"
    assert "cannot append" not in caplog.text


async def test_follower_with_empty_incremental_fetches_stays_in_sync() -> None:
    async with replica_cluster(2, replica_fetch_wait_max_ms=10) as cluster:
        await cluster.lead(1, replicas=(1, 2))
        assert (await cluster.produce(1, batch("a"))).error_code == 0
        leader = cluster.partition(1)
        await until(lambda: leader.high_watermark == cluster.partition(2).high_watermark == 1)
        before = leader.followers[2].seen_caught_up_ms
        await until(lambda: leader.followers[2].seen_caught_up_ms > before + 100)
        leader.notify_listeners()
        assert leader.followers[2].caught_up_ms == leader.followers[2].last_fetch_ms > before + 100
        assert cluster.proposals == []


async def test_follower_replicates_from_a_leader_without_session_slots() -> None:
    async with replica_cluster(max_incremental_fetch_session_cache_slots=0) as cluster:
        await cluster.lead(1)
        for value in "abc":
            assert (await cluster.produce(1, batch(value))).error_code == 0
        assert len(cluster[1].services.fetch_sessions) == 0
