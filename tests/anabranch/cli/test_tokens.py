"""`anabranch tokens` creates, lists, renews and expires tokens; a secret is only in its file."""

from __future__ import annotations

import stat
from pathlib import Path

from anabranch.cluster.in_process import Cluster
from tests.anabranch.cli.test_users import config, run_command
from tests.broker.credentials.test_delegation_tokens import LISTENER, PROPERTIES
from tests.secured.certificates import PLAIN_MODULE


async def test_token_is_created_renewed_and_expired(tmp_path: Path) -> None:
    async with Cluster(1, listeners=[f"{LISTENER}://127.0.0.1:0"], properties=PROPERTIES) as cluster:
        password = config(tmp_path / "password", "PLAIN", PLAIN_MODULE, "admin", "a")
        file = tmp_path / "token.properties"
        making = ("tokens", "create", str(file), "--hours", "1", "--command-config", password)
        status, made = await run_command(cluster, *making)
        assert status == 0, made
        token_id = made.split()[1]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        secret = file.read_text().partition('password="')[2].partition('"')[0]
        assert len(secret) == 88
        lost = str(tmp_path / "missing" / "token.properties")
        status, unwritable = await run_command(cluster, "tokens", "create", lost, "--command-config", password)
        assert (status, "is not a directory where files can be written" in unwritable) == (1, True)
        status, again = await run_command(cluster, *making)
        assert (status, "exists; name another file" in again) == (1, True)
        status, topics = await run_command(cluster, "topics", "create", "t", "--command-config", str(file))
        assert (status, topics) == (0, "created t\n")
        status, listed = await run_command(cluster, "tokens", "list", "--command-config", password)
        assert listed.startswith(f"{token_id} of User:admin, valid until ") and listed.count("\n") == 1
        status, renewed = await run_command(cluster, "tokens", "renew", token_id, "--command-config", password)
        assert renewed.startswith(f"token {token_id} is valid until ")
        status, refused = await run_command(cluster, "tokens", "list", "--command-config", str(file))
        assert (status, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in refused) == (1, True)
        status, ended = await run_command(cluster, "tokens", "expire", token_id, "--command-config", password)
        assert ended == f"token {token_id} has ended\n"
        status, unknown = await run_command(cluster, "tokens", "expire", token_id, "--command-config", password)
        assert (status, f"there is no token {token_id}" in unknown) == (1, True)
        assert not any(secret in text for text in (made, again, listed, renewed, refused, ended, unknown))
