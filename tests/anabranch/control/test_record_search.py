"""Goal: a search finds records in all partitions, newest first, and goes on where the last one ended."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.control import record_search
from tests.anabranch.control.test_server import served, status

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
