"""Each handler does what its route describes, and refuses invalid requests with a reason."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
from typing import Any, Final

import pytest

from anabranch import Admin, KafkaError
from anabranch.clients.security import SecurityArguments
from anabranch.control.actions import UnknownNode
from anabranch.control.route import Route
from anabranch.control.routes import ROUTES, ControlledCluster, ControlRequest, WaitTimedOut
from anabranch.journal.journal import Journal
from tests.anabranch.control.conftest import controlled
from tests.secured.certificates import plain_users

WAITS_OR_SNAPSHOTS: Final = {"wait_for_state", "wait_for_exchanges", "get_snapshot_file"}
"""A snapshot is the state of a cluster, and so contains its credentials."""
ALTER: Final = "IncrementalAlterConfigs"


async def ask(on: ControlledCluster, name: str, *, query: dict[str, str] | None = None, **words: Any) -> Any:
    route = next(one for one in ROUTES if one.handler.__name__ == name)
    body = words.pop("body", {})
    return await route.handler(on, ControlRequest({key: str(one) for key, one in words.items()}, query or {}, body))


async def response_of(on: ControlledCluster, route: Route, query: dict[str, str]) -> str:
    """The text of a response, or of the reason why there is none."""
    try:
        found = await route.handler(on, ControlRequest({"topic": "t"}, query, {}))
    except Exception as refusal:
        return repr(refusal)
    return repr(found)


async def test_topics_are_created_and_deleted() -> None:
    async with controlled() as on, asyncio.timeout(60):
        made = await ask(on, "create_topic", body={"topic": "a", "partitions": 3, "configs": {"retention.ms": 60000}})
        assert [one["leader"] > 0 for one in made["partitions"]] == [True] * 3
        assert (await ask(on, "get_topic", topic="a"))["topic"] == "a"
        assert [one["topic"] for one in await ask(on, "get_topics")] == ["a"]
        with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
            await ask(on, "create_topic", body={"topic": "a"})
        for body in (
            {},
            {"topic": 1},
            {"topic": "b", "configs": []},
            {"topic": "b", "partitions": "3"},
            {"topic": "b", "partitions": 10**30},
        ):
            with pytest.raises(ValueError, match=r"a new topic is|is a whole number|is at most"):
                await ask(on, "create_topic", body=body)
        await ask(on, "delete_topic", topic="a")
        with pytest.raises(WaitTimedOut, match="after 0 s there is no topic b"):
            await ask(on, "wait_for_state", query={"topic": "b", "timeout": "0"})
        with pytest.raises(UnknownNode, match="there is no topic b"):
            await ask(on, "get_topic", topic="b")


async def test_capabilities_name_what_this_cluster_cannot_do() -> None:
    async with controlled(1) as on, asyncio.timeout(60):
        row = await ask(on, "get_capabilities")
        assert len(row["requests"]) == len(ROUTES)
        reasons = {one["name"]: one["reason"] for one in (*row["requests"], *row["rules"]) if not one["possible"]}
        assert reasons["GET /v1/journal"] == "there is no journal; start the cluster with --control-journal 1000"
        assert "only in a cluster with a clock" in reasons["node=freeze"] == reasons["POST /v1/nodes/{node}/freeze"]
        assert not [name for name in reasons if "journal" not in name and "freeze" not in name and "thaw" not in name]
        with_journal = dataclasses.replace(on, journal=Journal(10, on.cluster.node_ids))
        names = [one["name"] for one in (await ask(with_journal, "get_capabilities"))["requests"] if one["possible"]]
        assert "GET /v1/journal" in names


async def test_control_plane_authenticates_as_a_broker() -> None:
    """All listeners need authentication: the control plane authenticates like a broker."""
    listener = "SASL_PLAINTEXT"
    properties = {
        **plain_users(listener, admin="of brokers"),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
    }
    async with (
        controlled(2, listeners=[f"{listener}://127.0.0.1:0"], properties=properties) as on,
        asyncio.timeout(60),
    ):
        made = await ask(on, "create_topic", body={"topic": "a", "partitions": 2})
        assert len(made["partitions"]) == 2
        await ask(on, "delete_topic", topic="a")


async def test_no_response_contains_a_password_that_was_configured_or_sent() -> None:
    listener, login, scram, key, unknown = "SASL_PLAINTEXT", "of-brokers", "of-carol", "of-a-key", "of-nothing-known"
    properties = plain_users(listener, admin=login) | {"delegation.token.secret.key": "of-tokens"}
    admin_login: SecurityArguments = {
        "security_protocol": listener,
        "sasl_plain_username": "admin",
        "sasl_plain_password": login,
    }
    async with (
        controlled(1, listeners=[f"{listener}://127.0.0.1:0"], properties=properties) as plain,
        asyncio.timeout(60),
    ):
        journal = Journal(500, plain.cluster.node_ids, frames=True)
        plain.cluster.on_node(journal.watch)
        on = dataclasses.replace(plain, journal=journal)
        async with Admin(plain.cluster.bootstrap_servers, **admin_login) as admin:
            await admin.set_password("carol", scram)
            changes = {f"listener.name.{listener.lower()}.ssl.key.password": key, "password.of.a.plugin": unknown}
            await admin.alter_configs(broker=1, changes=changes)
            token = await admin.create_token()
            await admin.describe_tokens()
            while not changes.keys() <= (configs := await admin.describe_configs(broker=1)).keys():
                pass  # the broker has not read the change yet
        await ask(on, "create_topic", body={"topic": "t"})

        told = {"DescribeConfigs": repr(configs)}
        for route in ROUTES:
            if route.method == "GET" and route.handler.__name__ not in WAITS_OR_SNAPSHOTS:
                told[route.path] = await response_of(
                    on, route, {"bytes": "true"} if route.path == "/v1/journal" else {}
                )
        for number in [one.number for one in journal]:
            told[f"exchange {number}"] = repr(await ask(on, "explain_exchange", number=number))
        exchanges = await ask(on, "get_journal")
        frames = [one.row(with_bytes=True)["bytes"] for one in journal]
    told["frames"] = " ".join(
        repr(base64.b64decode(part)) for both in frames if both for part in (both["request"], both["response"])
    )
    assert {one["api"] for one in exchanges} >= {
        "CreateDelegationToken",
        "DescribeDelegationToken",
        "AlterUserScramCredentials",
        ALTER,
    }
    assert "password.of.a.plugin" in told["DescribeConfigs"]
    assert "carol" in told["/v1/users"]
    assert min(len(told[place]) for place in ("/v1/journal", "/v1/journal/capture", "frames")) > 1000
    hmac = base64.b64decode(token.secret)
    assert not [place for place, text in told.items() if repr(hmac)[2:-1] in text or hmac.hex() in text]
    for password in (login, scram, key, unknown, token.secret):
        hexadecimal, encoded = password.encode().hex(), base64.b64encode(password.encode()).decode()
        for place, text in told.items():
            assert not {one for one in (password, hexadecimal, encoded) if one in text}, place


async def test_nodes_and_sessions_are_controlled() -> None:
    async with controlled() as on, asyncio.timeout(60):
        assert len(await ask(on, "get_nodes")) == 3
        for name, running in (("kill_node", False), ("start_node", True), ("stop_node", False), ("start_node", True)):
            assert (await ask(on, name, node=2))["running"] is running
        assert (await ask(on, "delay_session", body={"delay": 0.05}, node=3))["zookeeper_delay_ms"] == 50
        assert "zookeeper_delay_ms" not in await ask(on, "resume_session", node=3)
        for name in ("suspend_session", "resume_session", "expire_session"):
            assert (await ask(on, name, node=3))["node"] == 3
        with pytest.raises(UnknownNode, match="there is no node 'x'"):
            await ask(on, "kill_node", node="x")
        assert (await ask(on, "wait_for_state", query={"node": "3", "controller": "any"}))["newest"] == on.events.newest
        kinds = [one["kind"] for one in await ask(on, "get_events", query={"after": "0"})]
        assert "session expired" in kinds and "node killed" in kinds
        assert set(await ask(on, "get_state")) == {"nodes", "topics", "groups", "transactions"}
        assert await ask(on, "get_groups") == []
