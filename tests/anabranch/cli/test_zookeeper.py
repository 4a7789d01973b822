"""`anabranch zookeeper` runs until it is stopped, keeps its data, and forms ensembles."""

from __future__ import annotations

import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click
import pytest

from anabranch.cli.zookeeper import serve_built_in
from anabranch.cluster.local_zookeeper import why_unavailable
from anabranch.controller.zk.server.tcp_server import ZooKeeperTcpServer
from anabranch.controller.zk.tree import ZnodeTree
from anabranch.runtime.sockets import free_ports
from tests.anabranch.cli.conftest import Command, healthy


@pytest.mark.parametrize(
    ("kind", "other"), [(["--built-in"], ()), pytest.param((), ["--built-in"], marks=pytest.mark.zookeeper)]
)
def test_server_runs_until_signal(
    kind: Sequence[str], other: Sequence[str], tmp_path: Path, anabranch: Command
) -> None:
    reason = why_unavailable()
    if not kind and reason is not None:
        pytest.skip(f"NO REAL ZOOKEEPER: {reason}")
    words = [
        sys.executable,
        "-m",
        "anabranch.cli.main",
        "zookeeper",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        str(tmp_path),
        *kind,
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready zookeeper=127.0.0.1:")
            address = line.strip().partition("=")[2]
            assert healthy(anabranch, "--role", "zookeeper", address).exit_code == 0
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert anabranch("health", "--role", "zookeeper", address).exit_code == 1
    assert list((tmp_path / "data").iterdir())
    refused = anabranch("zookeeper", "--data-dir", str(tmp_path), *other)
    assert refused.exit_code == 2
    assert f"was written with --zookeeper {'built-in' if kind else 'local'}; use that again" in refused.output


def test_port_in_use_is_reported_at_once(anabranch: Command) -> None:
    if why_unavailable() is not None:
        pytest.skip(f"NO REAL ZOOKEEPER: {why_unavailable()}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = anabranch("zookeeper", "--listen", f"127.0.0.1:{port}")
    assert refused.exit_code == 1
    assert f"port {port} of 127.0.0.1 is in use" in refused.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--server", "10.0.0.1"], "write ID=HOST or ID=HOST:PORT:PORT"),
        (["--server", "1=10.0.0.1:2888"], "write ID=HOST or ID=HOST:PORT:PORT"),
        (["--server", "1=a", "--server", "1=b"], "duplicate server 1"),
        (["--server", "1=a", "--server", "2=b"], "an ensemble needs --server for each server, and --id for this one"),
        (
            ["--server", "1=a", "--server", "2=b", "--id", "3", "--data-dir", "zk"],
            "an ensemble needs --server for each server, and --id for this one",
        ),
        (["--id", "1"], "an ensemble needs --server for each server, and --id for this one"),
        (["--server", "1=a", "--id", "1"], "needs --data-dir"),
    ],
)
def test_invalid_ensemble_is_refused(words: list[str], said: str, anabranch: Command) -> None:
    refused = anabranch("zookeeper", *words)
    assert refused.exit_code == 2
    assert said in " ".join(refused.output.split())


@pytest.mark.costly
@pytest.mark.zookeeper
def test_servers_of_an_ensemble_wait_for_each_other(tmp_path: Path, anabranch: Command) -> None:
    if why_unavailable() is not None:
        pytest.skip(f"NO REAL ZOOKEEPER: {why_unavailable()}")
    ports = free_ports("127.0.0.1", 9)
    servers = [f"--server={n}=127.0.0.1:{ports[3 * n - 2]}:{ports[3 * n - 1]}" for n in (1, 2, 3)]
    with ExitStack() as stack:

        def start(number: int) -> subprocess.Popen[str]:
            at = f"--listen=127.0.0.1:{ports[3 * number - 3]}"
            folder = f"--data-dir={tmp_path / str(number)}"
            words = [sys.executable, "-m", "anabranch.cli.main", "zookeeper", at, folder, f"--id={number}", *servers]
            process = stack.enter_context(
                subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            )
            stack.callback(process.terminate)
            return process

        def heard(process: subprocess.Popen[str]) -> str:
            assert process.stdout is not None
            return process.stdout.readline()

        first = start(1)
        assert first.stderr is not None and first.stdout is not None
        assert first.stderr.readline() and first.stderr.readline() == "in service once 2 of the 3 servers run\n"
        assert select.select([first.stdout], [], [], 0)[0] == []
        second = start(2)
        assert heard(first) == f"ready zookeeper=127.0.0.1:{ports[0]}\n"
        assert heard(second) == f"ready zookeeper=127.0.0.1:{ports[3]}\n"
        first.terminate()
        assert first.wait(60) == 0
        third = start(3)
        assert heard(third) == f"ready zookeeper=127.0.0.1:{ports[6]}\n"
        waiting = start(1)
        heard(waiting)
        for one in (second, third):
            one.terminate()
            assert one.wait(60) == 0


@pytest.mark.zookeeper
def test_server_waiting_for_ensemble_stops_on_signal(tmp_path: Path) -> None:
    if why_unavailable() is not None:
        pytest.skip(f"NO REAL ZOOKEEPER: {why_unavailable()}")
    ports = free_ports("127.0.0.1", 7)
    words = [f"--server={n}=127.0.0.1:{ports[2 * n - 1]}:{ports[2 * n]}" for n in (1, 2, 3)]
    at = f"--listen=127.0.0.1:{ports[0]}"
    command = [sys.executable, "-m", "anabranch.cli.main", "zookeeper", at, "--id=1", f"--data-dir={tmp_path}", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "in service once" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


async def test_built_in_server_whose_file_cannot_be_written_ends_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def full(_: ZooKeeperTcpServer) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ZooKeeperTcpServer, "wait_failed", full)
    with pytest.raises(click.ClickException, match=r"its file cannot be written: .*No space left on device"):
        await serve_built_in(ZnodeTree(), "127.0.0.1", 0)


def test_built_in_server_reports_a_port_in_use(anabranch: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = anabranch("zookeeper", "--built-in", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert refused.exit_code == 1
    assert "cannot start: " in refused.output
