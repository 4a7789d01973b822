"""`anabranch nodes` without a cluster of processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch.cluster import process_registry
from anabranch.cluster.control_socket import OrderRefused
from tests.anabranch.cli.conftest import Command


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No door of a launcher is found, whatever runs on this machine."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_without_clusters_listing_is_empty(anabranch: Command) -> None:
    shown = anabranch("nodes", "list")
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert "no cluster of `anabranch up --processes` runs here" in shown.stderr


def test_node_without_cluster_cannot_be_started(anabranch: Command) -> None:
    refused = anabranch("nodes", "start", "2")
    assert refused.exit_code == 1 and "no running cluster" in refused.output


def test_reply_of_launcher_is_shown(anabranch: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    async def start_node(node: int, cluster: str) -> str:
        if node == 3:
            raise OrderRefused("node 3 is running already")
        return f"started node {node} of {cluster}"

    monkeypatch.setattr(process_registry, "start_node", start_node)
    assert anabranch("nodes", "start", "2", "--cluster", "here").output == "started node 2 of here\n"
    refused = anabranch("nodes", "start", "3")
    assert refused.exit_code == 1 and "node 3 is running already" in refused.output


def test_directory_of_sockets_that_cannot_be_trusted_is_named(anabranch: Command, tmp_path: Path) -> None:
    """`nodes list` ended with a traceback."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"anabranch-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    refused = anabranch("nodes", "list")
    assert refused.exit_code == 1 and "belongs to another user" in refused.output
