"""`anabranch acls` adds, lists and removes ACLs, which take effect immediately.

Method: the command as a process of its own, against a cluster over TCP whose listener wants a password.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.cli.acls import command
from anabranch.cluster.in_process import Cluster
from tests.anabranch.cli.test_main import invoke
from tests.anabranch.cli.test_users import config, run_command
from tests.broker.handlers.authorizing import LISTENER, PROPERTIES
from tests.secured.certificates import PLAIN_MODULE


async def test_acls_are_added_listed_and_removed(tmp_path: Path) -> None:
    async with Cluster(1, listeners=[f"{LISTENER}://127.0.0.1:0"], properties=PROPERTIES) as cluster:
        admin = config(tmp_path / "admin", "PLAIN", PLAIN_MODULE, "admin", "a")
        alice = config(tmp_path / "alice", "PLAIN", PLAIN_MODULE, "alice", "b")

        async def as_admin(*words: str) -> tuple[int, str]:
            return await run_command(cluster, "acls", *words, "--command-config", admin)

        status, output = await as_admin(
            *("add", "--allow", "User:alice", "--operation", "read", "--operation", "describe-configs"),
            *("--topic", "ord", "--prefixed", "--host", "127.0.0.1"),
        )
        assert (status, output) == (
            0,
            "added: User:alice may read topic ord* from 127.0.0.1\n"
            "added: User:alice may describe-configs topic ord* from 127.0.0.1\n",
        )
        await as_admin("add", "--deny", "User:*", "--operation", "write", "--topic", "orders", "--group", "g")
        status, output = await as_admin("list", "--topic", "orders", "--json")
        rows = [json.loads(line) for line in output.splitlines()]
        assert (status, {(one["name"], one["operation"], one["permission"]) for one in rows}) == (
            0,
            {("ord", "read", "allow"), ("ord", "describe-configs", "allow"), ("orders", "write", "deny")},
        )
        status, output = await run_command(cluster, "topics", "create", "other", "--command-config", alice)
        assert status == 1
        assert "TOPIC_AUTHORIZATION_FAILED" in output
        status, output = await as_admin("remove", "--allow", "User:alice")
        assert output.count("removed: User:alice may") == 2
        status, output = await as_admin("remove", "--allow", "User:alice")
        assert (status, output) == (0, "no entry matches\n")
        status, output = await as_admin("list")
        assert output == "User:* may not write topic orders\nUser:* may not write group g\n"


async def test_prefixed_alone_means_entries_with_prefixes(tmp_path: Path) -> None:
    async with Cluster(1, listeners=[f"{LISTENER}://127.0.0.1:0"], properties=PROPERTIES) as cluster:
        admin = config(tmp_path / "admin", "PLAIN", PLAIN_MODULE, "admin", "a")

        async def acls(*words: str) -> str:
            return (await run_command(cluster, "acls", *words, "--command-config", admin))[1]

        for words in (("--topic", "log-", "--prefixed"), ("--topic", "orders")):
            await acls("add", "--allow", "User:bob", "--operation", "read", *words)
        assert await acls("list", "--prefixed") == "User:bob may read topic log-*\n"
        assert await acls("remove", "--allow", "User:bob", "--prefixed") == "removed: User:bob may read topic log-*\n"
        assert await acls("list") == "User:bob may read topic orders\n"


async def test_without_authorizer_commands_fail() -> None:
    async with Cluster(1) as cluster:
        status, output = await run_command(cluster, "acls", "list")
        assert status == 1
        assert "No Authorizer is configured on the broker" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["add", "--allow", "User:a"], "no resource: write --topic, --group"),
        (["add", "--topic", "t"], "no principal: write --allow User:NAME or --deny User:NAME"),
        (["add", "--topic", "t", "--allow", "alice"], "alice is not a principal: write User:alice"),
        (["remove"], "no filter: write at least one of"),
        (["remove", "--prefixed"], "no filter: write at least one of"),
    ],
)
def test_incomplete_acl_is_refused(words: list[str], message: str) -> None:
    status, output = invoke(command.name or "", *words)
    assert status == 2
    assert message in " ".join(output.split())
