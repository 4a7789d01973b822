"""Charges of a request: its bytes and its processor time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.broker.quotas.client_quotas import DEFAULT, FETCH, PRODUCE, ClientQuotas
from anabranch.broker.quotas.throttling import (
    FETCH_KEY,
    PRODUCE_KEY,
    SHARE_FETCH_KEY,
    Throttling,
    TimedCoroutine,
    is_follower,
    traffic,
)
from anabranch.protocol.apis import share_fetch
from anabranch.protocol.apis.common_structs import LeaderIdAndEpoch
from anabranch.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def request(key: int, body: Any) -> Any:
    return SimpleNamespace(api=SimpleNamespace(key=key), body=body)


async def test_only_processor_time_counts_for_the_request_quota() -> None:
    now_s = 0.0

    async def work() -> str:
        nonlocal now_s
        now_s += 3
        await asyncio.sleep(0)
        now_s += 4
        return "done"

    async def other() -> None:
        nonlocal now_s
        now_s += 100

    timed = TimedCoroutine(work(), lambda: now_s)
    task = asyncio.create_task(other())
    assert await timed == "done"
    await task
    assert timed.busy_s == 7


async def test_time_of_failed_and_cancelled_requests_is_counted() -> None:
    now_s = 0.0

    async def work(error: Exception | None) -> None:
        nonlocal now_s
        now_s += 2
        if error is not None:
            raise error
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            now_s += 1

    failed = TimedCoroutine(work(ValueError("no")), lambda: now_s)
    with pytest.raises(ValueError, match="no"):
        await failed
    assert failed.busy_s == 2
    cancelled = TimedCoroutine(work(None), lambda: now_s)

    async def wait() -> None:
        await cancelled

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled.busy_s == 3


def fetch(**fields: Any) -> FetchRequest:
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[], **fields)


def test_follower_fetch_is_recognized_by_its_replica_id() -> None:
    assert not is_follower(request(FETCH_KEY, fetch()))
    assert is_follower(request(FETCH_KEY, fetch(replica_id=2)))
    assert is_follower(request(FETCH_KEY, fetch(replica_state=ReplicaState(replica_id=2))))
    assert not is_follower(request(PRODUCE_KEY, SimpleNamespace(replica_id=2)))


def test_only_record_bytes_count_for_produce_and_fetch_quotas() -> None:
    rows = [PartitionProduceData(index=n, records=records) for n, records in enumerate((b"12", None, b"345"))]
    produce = ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=rows)])
    assert traffic(request(PRODUCE_KEY, produce), None) == (PRODUCE, 5)
    found = [PartitionData(partition_index=0, error_code=0, high_watermark=0, records=b"1234")]
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=found)])
    assert traffic(request(FETCH_KEY, fetch()), answer) == (FETCH, 4)
    assert traffic(request(FETCH_KEY, fetch()), None) == ("", 0)
    assert traffic(request(3, None), answer) == ("", 0)


def throttling_of(quotas: ClientQuotas) -> Throttling:
    return Throttling(
        quotas, clock_ms=lambda: 5000, clock_s=lambda: 0.0, request_longest_ms=1000, take_back=lambda *_: 7
    )


async def test_fetch_over_the_quota_gets_an_empty_response_in_the_session_that_is_left() -> None:
    quotas = ClientQuotas(window_ms=1000, samples=11)
    quotas.set_limits((None, DEFAULT), {FETCH: 100})

    async def work() -> FetchResponse:
        row = PartitionData(partition_index=0, error_code=0, high_watermark=0, records=bytes(2000))
        return FetchResponse(session_id=3, responses=[FetchableTopicResponse(topic="t", partitions=[row])])

    asked = SimpleNamespace(api=SimpleNamespace(key=FETCH_KEY), body=fetch(), client_id="c")
    response, wait_ms = await throttling_of(quotas).answer(asked, work())  # type: ignore[arg-type]
    assert (response.session_id, response.responses, response.throttle_time_ms) == (7, [], wait_ms)
    assert quotas.record(FETCH, "c", 0, 5000) == 0, "its bytes do not count"


async def test_share_fetch_over_the_quota_is_throttled_and_keeps_what_it_acquired() -> None:
    quotas = ClientQuotas(window_ms=1000, samples=11)
    quotas.set_limits((None, DEFAULT), {FETCH: 100})
    throttling = throttling_of(quotas)
    row = share_fetch.PartitionData(
        partition_index=0,
        error_code=0,
        acknowledge_error_code=0,
        current_leader=LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
        records=bytes(2000),
        acquired_records=[],
    )

    async def work() -> share_fetch.ShareFetchResponse:
        topic = share_fetch.ShareFetchableTopicResponse(topic_id=bytes(16), partitions=[row])
        return share_fetch.ShareFetchResponse(error_code=0, responses=[topic], node_endpoints=[])

    asked = SimpleNamespace(
        api=SimpleNamespace(key=SHARE_FETCH_KEY), body=SimpleNamespace(max_bytes=1 << 20), client_id="c"
    )
    response, wait_ms = await throttling.answer(asked, work())  # type: ignore[arg-type]
    assert asked.body.max_bytes == 1000
    assert response.throttle_time_ms == wait_ms > 0
    assert response.responses[0].partitions == [row]
    assert quotas.record(FETCH, "c", 0, 5000) == wait_ms, "its bytes count"
