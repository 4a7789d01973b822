"""A blocking test lists the pushing clients of a cluster in another process, and awaits one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from anabranch.control.client import ControlClient, ControlError
from tests.anabranch.cli.test_telemetry import TAKING, UP, push
from tests.running import running


def test_blocking_client_awaits_and_reads_telemetry(tmp_path: Path) -> None:
    with running(*UP, *TAKING) as told:
        telemetry = ControlClient(told["control"]).telemetry
        assert telemetry.clients() == []
        with pytest.raises(ControlError, match="after 0 s no client 'a/b' has requested") as gave_up:
            telemetry.wait_for("a/b", 2, terminated=True, timeout_s=0)
        assert gave_up.value.status == 408
        asyncio.run(push(told["bootstrap"], b"OTLP", wanted=[]))
        assert telemetry.wait_for("shop", terminated=True) == telemetry.clients()
        with pytest.raises(RuntimeError, match="metrics of shop: "):
            telemetry.names("shop")
        telemetry.save("shop", tmp_path / "saved")
        assert (tmp_path / "saved").read_bytes() == b"OTLP"
        asyncio.run(push(told["bootstrap"], b"", wanted=[]))
        with pytest.raises(ControlError, match="no client 'a/b' has requested"):
            telemetry.metrics("a/b")
