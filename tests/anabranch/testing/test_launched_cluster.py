"""`anabranch up` in a child process: its ready line becomes a handle, and it ends with the block."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress

import pytest

from anabranch.control.client import ControlClient
from anabranch.testing.launched_cluster import CannotStart, launched_cluster


def test_cluster_runs_while_the_block_runs_without_the_token_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANABRANCH_CONTROL_TOKEN", "of another cluster")
    with launched_cluster(["--port", "0", "--brokers", "1", "--control", "127.0.0.1:0"]) as kafka:
        assert kafka.topic("orders") == "orders"
    assert "cannot connect to" in kafka.report().unreachable


def test_command_without_a_ready_line_cannot_start(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CannotStart, match=r"--config no\.such=1"), launched_cluster(["--config", "no.such=1"]):
        pass
    assert "no.such" in capfd.readouterr().err


LAUNCHER = """\
import sys
from anabranch.testing.launched_cluster import launched_cluster

with launched_cluster(["--port", "0", "--brokers", "1", "--control", "127.0.0.1:0"]) as kafka:
    print(kafka.control.ask("GET", "/v1/nodes") and kafka.control._url, flush=True)
    sys.stdin.read()
"""
ENDS_S = 30


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux ends the cluster")
def test_cluster_ends_with_a_killed_test_run() -> None:
    words = [sys.executable, "-c", LAUNCHER]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        control = ControlClient(launcher.stdout.readline().strip())
        launcher.kill()
    end_s = time.monotonic() + ENDS_S
    with suppress(ConnectionError):
        while time.monotonic() < end_s:
            control.ask("GET", "/v1/nodes")
        pytest.fail(f"the cluster runs {ENDS_S} s after its launcher was killed")
