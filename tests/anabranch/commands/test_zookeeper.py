"""Goal: `anabranch zookeeper` serves until it is told to stop, and keeps its data where it is told to."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.zookeeper import why_unavailable
from tests.anabranch.commands.conftest import Command, healthy


@pytest.mark.zookeeper
def test_it_serves_until_told_to_stop(tmp_path: Path, anabranch: Command) -> None:
    reason = why_unavailable()
    if reason is not None:
        pytest.skip(f"NO REAL ZOOKEEPER: {reason}")
    words = [
        sys.executable,
        "-m",
        "anabranch.main",
        "zookeeper",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        str(tmp_path),
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


def test_a_taken_port_is_said_at_once(anabranch: Command) -> None:
    if why_unavailable() is not None:
        pytest.skip(f"NO REAL ZOOKEEPER: {why_unavailable()}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = anabranch("zookeeper", "--listen", f"127.0.0.1:{port}")
    assert refused.exit_code == 1
    assert f"port {port} of 127.0.0.1 is in use" in refused.output
