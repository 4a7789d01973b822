"""Resizes are planned and done, records are written and read; invalid requests are refused."""

from __future__ import annotations

import pytest

from anabranch import Admin
from anabranch.control import topic_routes
from anabranch.inspect.record_text import to_value
from tests.anabranch.control.test_server import served, status
from tests.broker.coordinators.stock_members import TOPIC, StockMember


async def test_resize_is_planned_and_executed() -> None:
    async with served() as (_, session):
        await status(session, "POST", "/v1/topics", json={"topic": "t", "partitions": 4})
        code, plan = await status(session, "GET", "/v1/topics/t/plan?partitions=6")
        assert code == 200
        assert (plan["before"], plan["after"], plan["generation"]) == (4, 6, 1)
        assert plan["waits"] == {"4": [0], "5": [1]}
        assert plan["parents"] == [-1, 0, 0, 1, 0, 1]
        assert 0 < plan["moved_share"] < 1
        assert abs(sum(plan["shares"]) - 1) < 1e-9
        assert (await status(session, "GET", "/v1/topics/t"))[1]["generation"] == 0
        code, topic = await status(session, "POST", "/v1/topics/t/partitions", json={"partitions": 6})
        assert (code, topic["history"][-1]) == (200, {"generation": 1, "partitions": 6})
        code, topic = await status(session, "POST", "/v1/topics/t/partitions", json={"partitions": 3})
        assert (code, topic["generation"]) == (200, 2)
        for method, path, how, expected in [
            ("GET", "/v1/topics/t/plan?partitions=x", {}, 400),
            ("GET", "/v1/topics/t/plan?partitions=0", {}, 400),
            ("GET", "/v1/topics/nowhere/plan?partitions=3", {}, 404),
            ("POST", "/v1/topics/t/partitions", {"json": {"partitions": 3}}, 400),
            ("POST", "/v1/topics/t/partitions", {"json": {"partitions": True}}, 400),
        ]:
            code, told = await status(session, method, path, **how)
            assert (code, bool(told["error"])) == (expected, True), path


async def test_ordered_topic_with_stock_consumers_is_not_shrunk() -> None:
    async with served() as (controlled, session), Admin(controlled.cluster.bootstrap_servers) as admin:
        said = {"topic": TOPIC, "partitions": 2, "configs": {"enable.ordered.delivery": "true"}}
        await status(session, "POST", "/v1/topics", json=said)
        await StockMember(admin).take_part()
        code, told = await status(session, "POST", f"/v1/topics/{TOPIC}/partitions", json={"partitions": 1})
        assert (code, "cannot shrink while" in told["error"]) == (400, True)
        await admin.alter_configs(TOPIC, changes={"reshard.legacy.consumers.shrink": "warn"})
        code, _ = await status(session, "POST", f"/v1/topics/{TOPIC}/partitions", json={"partitions": 1})
        assert code == 200


async def test_only_requested_records_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch may have millions of records."""
    shown: list[bytes | None] = []

    def counted(value: bytes | None) -> object:
        shown.append(value)
        return to_value(value)

    monkeypatch.setattr(topic_routes, "to_value", counted)
    async with served() as (_, session):
        await status(session, "POST", "/v1/topics", json={"topic": "t", "partitions": 1})
        said = {"records": [{"key": "a", "value": f"{number}"} for number in range(50)]}
        await status(session, "POST", "/v1/topics/t/records", json=said)
        found = (await status(session, "GET", "/v1/topics/t/records?partition=0&offset=10&limit=2"))[1]
        assert [one["value"] for one in found["records"]] == ["10", "11"]
        assert len(shown) == 4


async def test_records_are_written_and_read() -> None:
    async with served() as (_, session):
        await status(session, "POST", "/v1/topics", json={"topic": "t", "partitions": 1})
        said = {"records": [{"key": "a", "value": f"{number}", "headers": [["h", "1"]]} for number in range(5)]}
        code, stored = await status(session, "POST", "/v1/topics/t/records", json=said)
        assert (code, stored) == (200, [{"partition": 0, "offset": number} for number in range(5)])
        found = (await status(session, "GET", "/v1/topics/t/records?partition=0"))[1]
        assert (found["start"], found["end"]) == (0, 5)
        assert [one["value"] for one in found["records"]] == ["0", "1", "2", "3", "4"]
        assert found["records"][0]["headers"] == [["h", "1"]]
        for query, values in [
            ("limit=2", ["3", "4"]),
            ("offset=1&limit=2", ["1", "2"]),
            ("offset=9", []),
            ("limit=0", []),
        ]:
            rows = (await status(session, "GET", f"/v1/topics/t/records?partition=0&{query}"))[1]["records"]
            assert [one["value"] for one in rows] == values, query
        for path, how, expected in [
            ("/v1/topics/t/records", {"json": {"records": []}}, 400),
            ("/v1/topics/t/records", {"json": {"records": [7]}}, 400),
            ("/v1/topics/t/records", {"json": {"records": [{"unknown": 7}]}}, 400),
            ("/v1/topics/nowhere/records", {"json": said}, 404),
        ]:
            assert (await status(session, "POST", path, **how))[0] == expected
        for query, expected in [("partition=1", 404), ("partition=x", 400), ("", 400), ("partition=0&offset=-1", 400)]:
            assert (await status(session, "GET", f"/v1/topics/t/records?{query}"))[0] == expected
