"""Goal: a search finds records in all partitions, newest first, and goes on where the last one ended."""

from __future__ import annotations

import time
from typing import Any

import pytest

from anabranch.clients.connection import Connection
from anabranch.control import record_search
from anabranch.control.topic_routes import HEADERS_MAX
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.records.record import iter_records
from tests.anabranch.control.test_server import served, status
from tests.broker.replication.test_record_validator import batch_of, record_with

RECORDS = 60


async def filled(session: Any, count: int = RECORDS) -> None:
    """A topic with records in three partitions, whose timestamps rise."""
    await status(session, "POST", "/v1/topics", json={"topic": "t", "partitions": 3})
    records = [
        {
            "key": f"k{number % 5}",
            "value": f'{{"number": {number}}}',
            "headers": [["trace", f"t-{number}"]],
            "partition": number % 3,
            "timestamp": 1_000_000 + number,
        }
        for number in range(count)
    ]
    await status(session, "POST", "/v1/topics/t/records", json={"records": records})


def numbers(found: dict[str, Any]) -> list[int]:
    return [one["timestamp"] - 1_000_000 for one in found["records"]]


async def test_records_are_found_in_all_partitions_newest_first() -> None:
    async with served() as (_, session):
        await filled(session)
        for query, expected in [
            ("", list(range(59, 9, -1))),
            ("key=k3&limit=3", [58, 53, 48]),
            ("value=number%22%3A%204", [49, 48, 47, 46, 45, 44, 43, 42, 41, 40, 4]),
            ("header=trace%3Dt-17", [17]),
            ("offset=2", [8, 7, 6]),
            ("offset=2&partition=1", [7]),
            ("from=1970-01-01T00:16:40.058&to=1970-01-01T00:16:41", [59, 58]),
            ("key=nowhere", []),
        ]:
            code, found = await status(session, "GET", f"/v1/topics/t/search?{query}")
            assert (code, numbers(found)) == (200, expected), query
        row = (await status(session, "GET", "/v1/topics/t/search?value=%3A%2017"))[1]["records"][0]
        assert (row["partition"], row["offset"], row["headers"]) == (2, 5, [["trace", "t-17"]])


async def test_search_continues_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_search, "STEP", 4)
    async with served() as (_, session):
        await filled(session)
        found: list[int] = []
        before = ""
        while True:
            rows = (await status(session, "GET", f"/v1/topics/t/search?limit=7&key=k&before={before}"))[1]
            found += numbers(rows)
            before = rows["before"]
            if not before:
                break
        assert found == list(range(59, -1, -1))


async def test_search_ends_early_after_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_search, "STEP", 4)
    monkeypatch.setattr(record_search, "SCAN_BYTES_MAX", 1)
    async with served() as (_, session):
        await status(session, "POST", "/v1/topics", json={"topic": "t", "partitions": 1})
        for number in range(10):
            records = [{"value": str(number)}]
            await status(session, "POST", "/v1/topics/t/records", json={"records": records})
        found = (await status(session, "GET", "/v1/topics/t/search?value=0"))[1]
        assert (found["records"], found["before"]) == ([], "0:6")
        found = (await status(session, "GET", "/v1/topics/t/search?value=0&before=0:4"))[1]
        assert ([one["offset"] for one in found["records"]], found["before"]) == ([0], "")


async def test_unusable_search_is_refused() -> None:
    async with served() as (_, session):
        await status(session, "POST", "/v1/topics", json={"topic": "t", "partitions": 1})
        for query, expected in [
            ("from=latest", 400),
            ("from=yesterday", 400),
            ("offset=x", 400),
            ("before=7", 400),
            ("partition=9", 404),
        ]:
            assert (await status(session, "GET", f"/v1/topics/t/search?{query}"))[0] == expected, query
        assert (await status(session, "GET", "/v1/topics/nowhere/search"))[0] == 404


async def test_leaderless_partition_is_skipped_unless_requested() -> None:
    async with served(brokers=2) as (on, session):
        await status(session, "POST", "/v1/topics", json={"topic": "t", "partitions": 2, "replicas": 1})
        records = [{"value": "x", "partition": index} for index in (0, 1)]
        await status(session, "POST", "/v1/topics/t/records", json={"records": records})
        topic = (await status(session, "GET", "/v1/topics/t"))[1]
        gone = next(one["partition"] for one in topic["partitions"] if one["leader"] == 2)
        await on.actions.kill(2)
        code, found = await status(session, "GET", "/v1/topics/t/search")
        assert (code, [one["partition"] for one in found["records"]]) == (200, [1 - gone])
        assert found["without_leader"] == [gone]
        assert (await status(session, "GET", f"/v1/topics/t/search?partition={gone}"))[0] == 409


@pytest.mark.parametrize(("records", "headers"), [(1, 400_000), (90_000, 0)])
async def test_long_batch_is_read_and_searched_beside_the_loop(records: int, headers: int) -> None:
    """Whatever a batch is full of, the thread of the loop does not go through it."""
    batch = batch_of(b"".join(record_with(index, headers) for index in range(records)), records, "gzip")
    started_s = time.thread_time()
    assert len(list(iter_records(batch))) == records
    whole_s = time.thread_time() - started_s
    async with served() as (on, session):
        await status(session, "POST", "/v1/topics", json={"topic": "t", "partitions": 1})
        connection = await Connection.open(*on.cluster.address(1), client_id="test")
        (topic,) = (await connection.call(produce_of(batch))).responses
        assert topic.partition_responses[0].error_code == 0
        await connection.close()
        started_s = time.thread_time()
        code, row = await status(session, "GET", "/v1/topics/t/records?partition=0&limit=1")
        assert (code, row["end"], row["records"][0]["offset"]) == (200, records, records - 1)
        assert len(row["records"][0]["headers"]) == min(headers, HEADERS_MAX)
        assert row["records"][0].get("more_headers", False) is (headers > HEADERS_MAX)
        for query, found in (("value=nowhere", 0), ("header=nowhere", 0), ("limit=1", 1)):
            code, row = await status(session, "GET", f"/v1/topics/t/search?{query}")
            assert (code, len(row["records"])) == (200, found)
        assert time.thread_time() - started_s < whole_s / 2


def produce_of(batch: bytes) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=batch)]
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name="t", partition_data=data)])
