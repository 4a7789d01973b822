"""`anabranch up` in a child process: its ready line becomes a handle, and it ends with the block."""

from __future__ import annotations

import pytest

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
