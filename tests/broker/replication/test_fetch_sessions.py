"""The fetch session cache: sessions, changes, and eviction."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from anabranch.broker.replication.fetch_sessions import (
    EPOCH_MAX,
    EVICTION_MS,
    FetchSession,
    FetchSessionCache,
    next_epoch,
)
from anabranch.protocol.apis.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from anabranch.protocol.errors import ErrorCode, KafkaError


def fetch_partition(index: int, offset: int = 0, epoch: int = 3) -> FetchPartition:
    return FetchPartition(partition=index, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=1 << 20)


def row(index: int = 0, /, **more: object) -> PartitionData:
    fields: dict[str, object] = {
        "error_code": 0, "high_watermark": 5, "log_start_offset": 0, "records": b"", **more
    }  # fmt: skip
    return PartitionData(partition_index=index, **fields)  # type: ignore[arg-type]


def request(
    *partitions: FetchPartition, session_id: int = 0, epoch: int = 0, forgotten: tuple[int, ...] = ()
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=list(partitions))] if partitions else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forgotten))] if forgotten else [],
    )


class Cache:
    """Hands out ids 1, 2, 3 ..."""

    def __init__(self, slots: int = 10) -> None:
        self.cache = FetchSessionCache(slots)
        self.ids = count(1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cache, name)

    def add(self, size: int = 1, *, follower: bool = False, now_ms: float = 0) -> int:
        full = request(*[fetch_partition(index) for index in range(size)])
        answer = [FetchableTopicResponse(topic="t", partitions=[row(index) for index in range(size)])] if size else []
        opened: int = self.open(
            full, answer, is_follower=follower, by_id=False, now_ms=now_ms, draw=lambda *_: next(self.ids)
        )
        return opened

    def use(self, session_id: int, epoch: int, now_ms: float = 0) -> FetchSession | None:
        admitted: FetchSession | None = self.admit(
            request(session_id=session_id, epoch=epoch), by_id=False, now_ms=now_ms
        )
        return admitted

    def knows(self, session_id: int) -> bool:
        return session_id in self.cache._sessions


def refusal(cache: Cache, one: FetchRequest, *, by_id: bool = False) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        cache.admit(one, by_id=by_id, now_ms=0)
    return refused.value.code


def test_session_epochs_wrap_to_one() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, EPOCH_MAX - 1, EPOCH_MAX)] == [1, 2, EPOCH_MAX, 1]


def test_request_with_wrong_session_id_epoch_or_topic_form_is_refused() -> None:
    cache = Cache()
    session_id = cache.add()
    assert refusal(cache, request(session_id=9, epoch=1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert refusal(cache, request(session_id=session_id, epoch=2)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    toggled = request(session_id=session_id, epoch=1)
    assert refusal(cache, toggled, by_id=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert cache.use(session_id, 1) is not None, "refused requests change nothing"
    assert refusal(cache, request(session_id=session_id, epoch=1)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.use(session_id, 2) is not None


def test_request_updates_the_sessions_partitions_and_an_empty_session_is_closed() -> None:
    cache = Cache()
    session_id = cache.add(2)
    change = request(fetch_partition(1, 7), fetch_partition(2), session_id=session_id, epoch=1, forgotten=(0,))
    session = cache.admit(change, by_id=False, now_ms=0)
    assert session is not None
    assert {key: one.requested.fetch_offset for key, one in session.partitions.items()} == {("t", 1): 7, ("t", 2): 0}
    last = request(session_id=session_id, epoch=2, forgotten=(1, 2))
    assert cache.admit(last, by_id=False, now_ms=0) is None
    assert not cache.knows(session_id)


@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        ({}, False),
        ({"high_watermark": 6}, True),
        ({"log_start_offset": 1}, True),
        ({"records": b"batch"}, True),
        ({"error_code": ErrorCode.OFFSET_OUT_OF_RANGE}, True),
        ({"diverging_epoch": EpochEndOffset(epoch=0, end_offset=2)}, True),
        ({"preferred_read_replica": 2}, True),
        ({"last_stable_offset": 3}, False),
    ],
)
def test_changed_row_is_sent(changes: dict[str, object], changed: bool) -> None:
    cache = Cache()
    session = cache.use(cache.add(), 1)
    assert session is not None
    assert session.partitions["t", 0].has_changed(row(**changes)) is changed


def test_row_is_sent_after_an_error_or_epoch_change() -> None:
    cache = Cache()
    session_id = cache.add()
    session = cache.use(session_id, 1)
    assert session is not None
    entry = session.partitions["t", 0]
    session.on_sent([(entry, row(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))])
    assert entry.has_changed(row())
    session.on_sent([(entry, row())])
    assert not entry.has_changed(row())
    cache.admit(request(fetch_partition(0, 9), session_id=session_id, epoch=2), by_id=False, now_ms=0)
    assert not entry.has_changed(row()), "only the offset moved"
    cache.admit(request(fetch_partition(0, 9, epoch=4), session_id=session_id, epoch=3), by_id=False, now_ms=0)
    assert entry.has_changed(row())


@pytest.mark.parametrize("epoch", [0, 2])
def test_high_watermark_is_sent_again_after_a_diverging_epoch(epoch: int) -> None:
    """A truncating follower ignores the rest of that row; an idle partition would never repeat it."""
    cache = Cache()
    session = cache.use(cache.add(follower=True), 1)
    assert session is not None
    (entry,) = session.partitions.values()
    session.on_sent([(entry, row(diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=4)))])
    assert entry.has_changed(row())


def test_partition_with_records_moves_to_the_end() -> None:
    cache = Cache()
    session = cache.use(cache.add(3), 1)
    assert session is not None
    first, second, _ = session.partitions_in_order()
    session.on_sent([(first, row(records=b"batch")), (second, row(1, high_watermark=9))])
    assert [entry.key[1] for entry in session.partitions_in_order()] == [1, 2, 0]


OLD = EVICTION_MS + 1


@pytest.mark.parametrize(
    ("present", "newcomer", "evicted"),
    [
        # (follower's, partitions, age): all were used just now
        ([(False, 1, 0), (False, 2, 0)], (False, 9), None),  # young consumers are safe from consumers
        ([(False, 3, OLD), (False, 2, OLD)], (False, 3), 2),  # the smaller one goes
        ([(False, 3, OLD), (False, 2, OLD)], (False, 1), None),  # for one that is larger
        ([(False, 3, OLD), (False, 2, OLD)], (False, 2), None),
        ([(True, 1, OLD), (True, 1, OLD)], (False, 9), None),  # followers are safe from consumers
        ([(True, 1, 0), (False, 5, 0)], (True, 1), 2),  # any consumer gives way to a follower
        ([(False, 5, 0), (False, 2, 0)], (True, 1), 2),
        ([(True, 1, 0), (True, 2, 0)], (True, 9), None),  # young followers are safe from followers
        ([(True, 3, OLD), (True, 2, OLD)], (True, 3), 2),
    ],
)
def test_full_cache_evicts_by_kind_size_and_age(
    present: list[tuple[bool, int, int]], newcomer: tuple[bool, int], evicted: int | None
) -> None:
    cache, now_ms = Cache(len(present)), 1_000_000
    ids = [cache.add(size, follower=follower, now_ms=now_ms - age) for follower, size, age in present]
    for session_id in ids:
        cache.use(session_id, 1, now_ms)
    new = cache.add(newcomer[1], follower=newcomer[0], now_ms=now_ms)
    assert (new != 0) == (evicted is not None)
    assert [one for one in ids if not cache.knows(one)] == ([] if evicted is None else [evicted])
    assert len(cache.cache) == len(present)


def test_session_without_partitions_gives_way_to_a_followers() -> None:
    cache = Cache(1)
    empty = cache.add(0)
    assert cache.add(1, follower=True) and not cache.knows(empty)


def test_idle_session_is_evicted_first() -> None:
    cache = Cache(2)
    idle, busy = cache.add(9, follower=True), cache.add(1)
    cache.use(busy, 1, OLD)
    assert cache.add(1, now_ms=OLD) and not cache.knows(idle) and cache.knows(busy)


def test_cache_without_slots_creates_no_session() -> None:
    assert Cache(0).add(5, follower=True) == 0


def test_entries_of_closed_sessions_are_removed() -> None:
    cache = Cache(4)
    for _ in range(1000):
        cache.close(cache.add(1))
    assert len(cache._for_followers) <= 65
