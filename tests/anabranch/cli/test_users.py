"""`anabranch users` adds and removes users, with Kafka's client properties, and shows no password.

Method: the command as a process of its own, against a cluster over TCP whose listener wants a password.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from anabranch.cluster.in_process import Cluster
from tests.secured.certificates import PLAIN_MODULE, SCRAM_MODULE, plain_users

PROPERTIES = {**plain_users("SASL_PLAINTEXT", admin="planted"), "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"}


async def run_command(cluster: Cluster, *words: str, given: str = "") -> tuple[int, str]:
    """Exit status and output of a command."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "anabranch.cli.main", *words, "--bootstrap-servers", cluster.bootstrap_servers),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate(given.encode())
    return process.returncode or 0, output.decode()


def config(path: Path, mechanism: str, module: str, user: str, password: str) -> str:
    jaas = f'{module} required username="{user}" password="{password}";'
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n")
    return str(path)


async def test_user_is_created_authenticated_and_deleted(tmp_path: Path) -> None:
    async with Cluster(1, listeners=["SASL_PLAINTEXT://127.0.0.1:0"], properties=PROPERTIES) as cluster:
        admin = config(tmp_path / "admin", "PLAIN", PLAIN_MODULE, "admin", "planted")
        alice = config(tmp_path / "alice", "SCRAM-SHA-512", SCRAM_MODULE, "alice", "planted too")
        status, output = await run_command(
            cluster, "users", "set", "alice", "--password-file", "-", "--command-config", admin, given="planted too\n"
        )
        assert (status, output) == (0, "user alice logs in with SCRAM-SHA-256 and SCRAM-SHA-512\n")
        status, output = await run_command(cluster, "users", "list", "--command-config", alice)
        assert (status, output) == (
            0,
            "alice: SCRAM-SHA-256 (4096 iterations), SCRAM-SHA-512 (4096 iterations)\n",
        )
        status, output = await run_command(cluster, "users", "delete", "alice", "--command-config", admin)
        assert (status, output) == (0, "user alice is deleted\n")
        status, output = await run_command(cluster, "users", "list", "--command-config", alice)
        assert status == 1
        assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in output
        assert "planted" not in output


async def test_invalid_command_config_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("security.protocol=SASL_PLAINTEXT\n")
    async with Cluster(1) as cluster:
        status, output = await run_command(cluster, "users", "list", "--command-config", str(tmp_path / "bad"))
        assert status == 2
        assert "Kerberos is not supported" in output
