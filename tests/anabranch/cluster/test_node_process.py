"""One node in a process of its own: how it starts, fails, stops, and ends with its launcher."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from anabranch.cluster.node_process import NodeFailed, NodeProcess, is_stopped
from anabranch.cluster.processes import ProcessCluster
from anabranch.cluster.zookeeper import die_with_parent

pytestmark = pytest.mark.processes


def test_command_has_no_property_of_the_node(tmp_path: Path) -> None:
    """Passwords are among them; anybody can read a command line."""
    node = NodeProcess(1, "broker", "127.0.0.1", 9092, tmp_path, "127.0.0.1:2181", {"ssl.key.password": "secret"})
    words = node.command()
    assert not any("secret" in word for word in words)
    assert words[-2:] == ["--config-file", str(tmp_path / "node-1.properties")]
    assert words[: len(die_with_parent())] == die_with_parent()
    assert words[words.index("--data-dir") + 1] == str(tmp_path / "node-1")
    assert (node.running, node.pid, node.frozen, node.log_tail()) == (False, -1, False, "")


def test_process_is_stopped_between_its_signals() -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        try:
            assert not is_stopped(child.pid)
            child.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
            assert is_stopped(child.pid)
        finally:
            child.kill()
    with pytest.raises(OSError, match="No such file"):
        is_stopped(child.pid)


async def test_frozen_node_stops_in_order(tmp_path: Path) -> None:
    """With a frozen node, `anabranch up --processes` took half a minute to end, and killed the node."""
    node = NodeProcess(1, "broker", "h", 1, tmp_path, "zk:1", {}, module="tests.anabranch.idle_node")
    await node.start()
    await node.wait_ready()
    node.signal(signal.SIGSTOP)
    await asyncio.to_thread(os.waitid, os.P_PID, node.pid, os.WSTOPPED | os.WNOWAIT)
    assert node.frozen
    await node.stop(timeout_s=20)
    assert node.process is not None and node.process.returncode == -signal.SIGTERM


async def test_node_that_cannot_start_names_its_error() -> None:
    cluster = ProcessCluster(1, zookeeper="127.0.0.1:1", properties={"num.partitions": "none"})
    with pytest.raises(NodeFailed, match="must be a whole number"):
        async with cluster:
            pass


def test_node_without_zookeeper_fails_with_one_line() -> None:
    command = [
        sys.executable,
        "-m",
        "anabranch.cli.main",
        "node",
        "--id",
        "1",
        "--roles",
        "controller",
        "--log-level",
        "error",
    ]
    command += ["--zookeeper", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--config", "zookeeper.session.timeout.ms=500"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 1
    assert "Error: cannot start:" in ended.stderr and "no ZooKeeper answered at 127.0.0.1:1" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_children_die_with_launcher_without_helper_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    launcher = f"""
import subprocess, sys
child = subprocess.Popen([*{die_with_parent()!r}[:-1], str(__import__("os").getpid()), "sleep", "1000"])
print(child.pid, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", launcher], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        while Path(f"/proc/{child}/comm").read_text() != "sleep\n":
            Event().wait(0.01)
        parent.kill()
    for _ in range(1000):
        status = Path(f"/proc/{child}/status")
        if not status.exists() or "State:\tZ" in status.read_text():
            return
        Event().wait(0.01)
    raise AssertionError("the child outlives its parent")
