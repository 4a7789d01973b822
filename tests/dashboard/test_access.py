"""The view of access shows every ACL, user with SCRAM credentials, and quota of a cluster."""

from __future__ import annotations

import asyncio

import pytest

from anabranch import Admin
from anabranch.control.client import ControlClient
from anabranch.protocol.acls import Acl, Operation, PatternType, Permission, ResourcePattern, ResourceType
from anabranch.protocol.apis.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from anabranch.protocol.apis.describe_client_quotas import EntityData
from tests.dashboard.chromium import Page
from tests.dashboard.lively import elsewhere

pytestmark = pytest.mark.browser
SECURED = (
    *("-m", "anabranch.cli.main", "up", "--brokers", "1", "--port", "0", "--control", "127.0.0.1:0"),
    *("--config", "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"),
    *("--config", "super.users=User:ANONYMOUS"),
)


async def fill(servers: str) -> None:
    """Give the cluster ACLs, a user and quotas."""
    async with Admin(servers) as admin:
        await admin.create_acls(
            [
                (
                    ResourcePattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED),
                    Acl("User:alice", "*", Operation.READ, Permission.ALLOW),
                ),
                (
                    ResourcePattern(ResourceType.GROUP, "billing"),
                    Acl("User:bob", "10.0.0.9", Operation.ALL, Permission.DENY),
                ),
            ]
        )
        await admin.set_password("carol", "secret")
        quotas = [
            ({"client-id": "till"}, {"producer_byte_rate": 1024.0}),
            ({"user": None}, {"consumer_byte_rate": 2048.0, "request_percentage": 50.0}),
        ]
        entries = [
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                ops=[OpData(key=key, value=value, remove=False) for key, value in limits.items()],
            )
            for entity, limits in quotas
        ]
        response = await admin.network.call_any(AlterClientQuotasRequest(entries=entries, validate_only=False))
        assert [one.error_code for one in response.entries] == [0, 0]


def rows(page: Page) -> dict[str, list[list[str]]]:
    """The cells of each table, by the heading of its panel."""
    script = """
        const text = (one) => one.innerText.split("\\n").filter(Boolean).join("; ");
        return Object.fromEntries([...document.querySelectorAll(".panel")].map((panel) => [
            panel.querySelector("h2").firstChild.textContent.trim(),
            [...panel.querySelectorAll("tbody tr")].map((row) => [...row.cells].map(text))]));
    """
    found: dict[str, list[list[str]]] = page.driver.execute_script(script)
    return found


def test_acls_users_and_quotas_are_rows(browser: Page) -> None:
    with elsewhere(*SECURED) as url:
        page = browser.at(url)
        page.open("access")
        page.see(".panel p", "The authorizer has no entries.")
        page.see(".panel p", "There are no quotas.")
        (node,) = ControlClient(url).ask("GET", "/v1/nodes")
        asyncio.run(fill(f"{node['host']}:{node['port']}"))
        page.click("Read again")
        page.see("td", "User:alice")
        assert rows(page) == {
            "ACLs": [
                ["User:alice", "*", "ALLOW", "READ", "TOPIC ord*"],
                ["User:bob", "10.0.0.9", "DENY", "ALL", "GROUP billing"],
            ],
            "Users": [["carol", "SCRAM-SHA-256", "4,096"], ["carol", "SCRAM-SHA-512", "4,096"]],
            "Quotas": [
                ["client-id till", "producer_byte_rate", "1,024 bytes/s written"],
                [
                    "user (default)",
                    "consumer_byte_rate; request_percentage",
                    "2,048 bytes/s read; 50 % of request time",
                ],
            ],
        }
        assert page.accessibility() == []
        page.size(390, 844, mobile=True)
        assert page.overflow() <= 0
        assert page.complaints() == []
