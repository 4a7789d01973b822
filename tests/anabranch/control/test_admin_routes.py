"""Goal: an administrator's work over HTTP: properties, offsets of groups, ACLs, users and quotas."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, get_type_hints

import pytest

import anabranch
from anabranch import Admin, Consumer, Producer
from anabranch.clock.cluster_clock import ClusterClock
from anabranch.cluster.in_process import Cluster
from anabranch.control.actions import Actions
from anabranch.control.admin_routes import OffsetsBody, get_acls, get_quotas, get_users, reset_group_offsets
from anabranch.control.controlled_cluster import ControlledCluster
from anabranch.control.events import Events
from anabranch.control.record_search import search_records
from anabranch.control.route import ControlRequest
from anabranch.inspect.offset_reset import TARGETS, parse_target
from anabranch.protocol.acls import Acl, Operation, PatternType, Permission, ResourcePattern, ResourceType
from anabranch.protocol.apis.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from anabranch.protocol.apis.describe_client_quotas import EntityData
from tests.anabranch.control.conftest import controlled, with_topic
from tests.anabranch.control.test_server import served, status
from tests.broker.handlers.authorizing import ADMIN, LISTENER, PROPERTIES

PAGE: Final = Path(anabranch.__file__).parent / "dashboard" / "page"
NOTHING = ControlRequest({}, {}, {})


async def test_topic_configs_are_changed_and_reset_to_defaults() -> None:
    async with served() as (_, session):
        await status(session, "POST", "/v1/topics", json={"topic": "t", "partitions": 1})
        path = "/v1/topics/t/configs"

        def row(rows: list[dict[str, Any]]) -> tuple[str, str]:
            one = next(one for one in rows if one["name"] == "retention.ms")
            assert one["description"]
            return one["value"], one["source"]

        default = row((await status(session, "GET", path))[1])
        assert default[1] == "default"
        code, rows = await status(session, "POST", path, json={"set": {"retention.ms": "60000"}})
        assert (code, row(rows)) == (200, ("60000", "topic"))
        assert row((await status(session, "POST", path, json={"unset": ["retention.ms"]}))[1]) == default
        for body in ({}, {"set": {"retention.ms": 7}}, {"set": {"retention.ms": "x"}}, {"unset": [7]}):
            assert (await status(session, "POST", path, json=body))[0] == 400, body
        assert (await status(session, "GET", "/v1/topics/nowhere/configs"))[0] == 400


def test_every_target_of_a_reset_that_is_shown_is_accepted() -> None:
    now = datetime(2026, 11, 23, 12, tzinfo=UTC)
    back = {
        text: parse_target(text, now=now)
        for text in re.findall(r"earliest|latest|\d{4}-\S+(?=,)|\d+[mhd]|-\d+", TARGETS)
    }
    assert back.pop("2h") == back.pop("2026-11-23T10:00") == datetime(2026, 11, 23, 10, tzinfo=UTC)
    assert back.keys() == {"earliest", "latest", "15m", "1d", "-100"}
    assert get_type_hints(OffsetsBody, include_extras=True)["to"].__metadata__ == (TARGETS,)
    assert TARGETS in (PAGE / "views" / "reset.js").read_text()


async def test_group_offset_reset_is_previewed_then_executed() -> None:
    async with served() as (on, session):
        await status(session, "POST", "/v1/topics", json={"topic": "t", "partitions": 2})
        records = [{"value": "x", "partition": number % 2} for number in range(10)]
        await status(session, "POST", "/v1/topics/t/records", json={"records": records})
        path, said = "/v1/groups/g/offsets", {"topic": "t", "to": "3"}
        code, found = await status(session, "POST", path, json=said | {"dry_run": True})
        assert (code, found["committed"], found["members"]) == (200, False, [])
        assert [(one["partition"], one["before"], one["after"]) for one in found["offsets"]] == [
            (0, None, 3),
            (1, None, 3),
        ]
        found = (await status(session, "POST", path, json=said))[1]
        assert found["committed"]
        found = (await status(session, "POST", path, json=said | {"to": "-2", "partition": 1, "dry_run": True}))[1]
        assert [(one["partition"], one["before"], one["after"]) for one in found["offsets"]] == [(1, 3, 1)]
        async with Consumer("t", bootstrap_servers=on.cluster.bootstrap_servers, group_id="g") as consumer:
            await consumer.getone()
            code, found = await status(session, "POST", path, json=said)
            assert (code, "members, which must stop first" in found["error"]) == (409, True)
            code, found = await status(session, "POST", path, json=said | {"dry_run": True})
            assert (code, len(found["members"])) == (200, 1)
        for body in ({"topic": "t"}, said | {"to": "lastest"}, said | {"topic": "nowhere"}, said | {"partition": 9}):
            assert (await status(session, "POST", path, json=body))[0] == 400, body


@pytest.mark.asyncio(loop_factories=["clock"])
async def test_times_ago_are_counted_from_the_time_of_the_cluster() -> None:
    cluster, clock, events = Cluster(1, seed=1), ClusterClock.new(), Events()
    assert clock is not None
    async with clock.running(cluster), asyncio.timeout(60):
        on = ControlledCluster(cluster, Actions(cluster, events), events, clock=clock)
        await with_topic(on, "t", 1)
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"before", timestamp_ms=clock.day_ms())
            await clock.advance(2 * 3600)
            await producer.send_and_wait("t", b"after", timestamp_ms=clock.day_ms())
        said = {"topic": "t", "to": "1h", "dry_run": True}
        found = await reset_group_offsets(on, ControlRequest({"group": "g"}, {}, said))
        assert [one["after"] for one in found["offsets"]] == [1]
        records = (await search_records(on, ControlRequest({"topic": "t"}, {"from": "1h"}, {})))["records"]
        assert [one["value"] for one in records] == ["after"]


async def test_acls_users_and_quotas_are_listed() -> None:
    secured: dict[str, Any] = {"listeners": [f"{LISTENER}://127.0.0.1:0"], "properties": PROPERTIES}
    async with controlled(1, **secured) as on, Admin(on.cluster.bootstrap_servers, **ADMIN) as admin:
        orders = ResourcePattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED)
        await admin.create_acls([(orders, Acl("User:alice", "*", Operation.READ, Permission.ALLOW))])
        assert await get_acls(on, NOTHING) == {
            "authorizer": True,
            "acls": [
                {
                    "principal": "User:alice",
                    "host": "*",
                    "permission": "ALLOW",
                    "operation": "READ",
                    "resource_type": "TOPIC",
                    "pattern_type": "PREFIXED",
                    "resource": "ord",
                }
            ],
        }
        await admin.set_password("carol", "secret")
        users = await get_users(on, NOTHING)
        assert {"user": "carol", "mechanism": "SCRAM-SHA-256", "iterations": users[-1]["iterations"]} in users
        limits = {
            "till": {"producer_byte_rate": 1024.0},
            "audit": {"request_percentage": 9.0, "consumer_byte_rate": 7.0},
        }
        entries = [
            EntryData(
                entity=[EntityData(entity_type="client-id", entity_name=name)],
                ops=[OpData(key=key, value=value, remove=False) for key, value in quotas.items()],
            )
            for name, quotas in limits.items()
        ]
        await admin.network.call_any(AlterClientQuotasRequest(entries=entries, validate_only=False))
        found = [(row["entity"], list(row["quotas"].items())) for row in await get_quotas(on, NOTHING)]
        assert found == [
            ({"client-id": "audit"}, [("consumer_byte_rate", 7.0), ("request_percentage", 9.0)]),
            ({"client-id": "till"}, [("producer_byte_rate", 1024.0)]),
        ]


async def test_cluster_without_authorizer_has_empty_lists() -> None:
    async with served() as (_, session):
        assert (await status(session, "GET", "/v1/acls"))[1] == {"authorizer": False, "acls": []}
        assert (await status(session, "GET", "/v1/users"))[1] == []
        assert (await status(session, "GET", "/v1/quotas"))[1] == []
