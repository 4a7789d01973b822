"""A data directory belongs to one cluster at a time, in its form; missing brokers are reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch import Producer
from anabranch.broker.config.broker_settings import ConfigError
from anabranch.broker.storage.os_files import OsFiles
from anabranch.clients.directory_lock import DirectoryInUse, DirectoryLock
from anabranch.cluster.in_process import Cluster
from anabranch.state.data_directory import JOURNAL, node_command_options, refuse_other_form, refuse_other_zookeeper
from tests.anabranch.cluster.test_in_process import create

pytestmark = pytest.mark.timeout(60)


ANABRANCH = (sys.executable, "-m", "anabranch.cli.main")
TIMEOUT_S = 60


@contextmanager
def up(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running `anabranch up` with its ready line."""
    command = [*ANABRANCH, "up", "--port", "0", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


def refused(*words: str, status: int = 1) -> str:
    """Return the output of a command that ends with this status."""
    ended = subprocess.run([*ANABRANCH, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert ended.returncode == status, ended
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    return ended.stderr


async def test_two_clusters_do_not_share_a_directory(tmp_path: Path) -> None:
    """A second cluster and a node are refused with the owner's name. After kill -9 there is no lock, and acknowledged
    records exist.
    """
    words = ("--brokers", "1", "--data-dir", str(tmp_path))
    with up(*words) as (first, ready):
        servers = ready.strip().partition("bootstrap=")[2]
        async with Producer(servers) as producer:
            await producer.send_and_wait("t", b"kept", key=b"k")
        node = ("node", "--id", "1", "--zookeeper", "127.0.0.1:1", "--listen", "127.0.0.1:0")
        for said, place in (
            (refused("up", "--port", "0", *words), tmp_path),
            (refused(*node, "--data-dir", str(tmp_path / "broker-1")), tmp_path / "broker-1"),
        ):
            assert said.count("\n") == 1
            assert f"cannot start: Failed to acquire lock on file .lock in {place}: process {first.pid} (" in said
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    with up(*words) as (second, ready):
        assert ready.startswith("ready ")
        second.terminate()
        assert second.wait(TIMEOUT_S) == 0
    assert b"kept" in next((tmp_path / "broker-1" / "t-0").glob("*.log")).read_bytes()


def test_process_cluster_does_not_share_its_directory(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    said = refused("up", "--processes", "--zookeeper", "127.0.0.1:1", "--data-dir", str(tmp_path))
    lock.release()
    assert f"Failed to acquire lock on file .lock in {tmp_path}: process {os.getpid()} (" in said
    assert said.count("\n") == 1


async def test_failed_start_leaves_no_lock(tmp_path: Path) -> None:
    two = Cluster(2)
    two._data.files = {node_id: OsFiles(tmp_path) for node_id in (1, 2)}
    with pytest.raises(DirectoryInUse, match="another node of this process"):
        async with two:
            pass
    one = Cluster(1)
    one._data.files = {1: OsFiles(tmp_path)}
    with pytest.raises(ConfigError, match=r"belongs to cluster\.id"):
        async with one:
            pass
    DirectoryLock(tmp_path).release()


async def test_restarted_broker_gets_its_directory(tmp_path: Path) -> None:
    async with Cluster(2, data_dir=tmp_path) as cluster:
        for leave in (cluster.stop_broker, cluster.crash_broker):
            await leave(2)
            await cluster.start_broker(2)
        with pytest.raises(DirectoryInUse):
            OsFiles(tmp_path / "broker-2").lock()


async def test_smaller_cluster_reports_missing_brokers(tmp_path: Path) -> None:
    """A cluster of three opened with one broker reports what is missing; with three, everything is back."""
    async with Cluster(3, data_dir=tmp_path) as cluster:
        await create(cluster, "copied", partitions=2, replicas=3)
        await create(cluster, "single", partitions=3, replicas=1)
        assert await node_command_options("127.0.0.1", cluster.nodes[1].port) == ""
    with up("--brokers", "1", "--data-dir", str(tmp_path)) as (process, ready):
        assert ready.startswith("ready ")
        process.terminate()
        _, said = process.communicate(timeout=TIMEOUT_S)
    assert said.startswith("warning: this cluster also has brokers 2 and 3, which do not run: ")
    assert "2 partitions are unavailable (single-" in said
    assert "2 partitions have fewer replicas" in said
    assert "Nothing is deleted: --brokers 3 brings everything back" in said
    with up("--brokers", "3", "--data-dir", str(tmp_path)) as (process, ready):
        process.terminate()
        assert process.communicate(timeout=TIMEOUT_S)[1] == ""


def test_directory_of_other_cluster_form_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "zookeeper.journal").touch()
    (tmp_path / "many" / "node-1").mkdir(parents=True)
    (tmp_path / "many" / "node-1" / "meta.properties").touch()
    for place in ("one", "many", "new"):
        for processes in (True, False):
            if (place, processes) in (("one", True), ("many", False)):
                with pytest.raises(ConfigError, match="out --processes" if processes else "with --processes"):
                    refuse_other_form(tmp_path / place, processes=processes)
            else:
                refuse_other_form(tmp_path / place, processes=processes)


@pytest.mark.parametrize(
    ("written", "kind", "other"), [("version-2/log.1", "built-in", "local"), (JOURNAL, "local", "built-in")]
)
def test_data_of_another_kind_of_zookeeper_is_refused(tmp_path: Path, written: str, kind: str, other: str) -> None:
    data = tmp_path / "zookeeper" / "data" / written
    data.parent.mkdir(parents=True)
    data.touch()
    said = refused("up", "--processes", "--port", "0", "--zookeeper", kind, "--data-dir", str(tmp_path), status=2)
    assert f"was written with --zookeeper {other}; use that again, or another --data-dir" in " ".join(said.split())
    refuse_other_zookeeper(tmp_path / "zookeeper", built_in=other == "built-in")
