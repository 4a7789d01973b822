"""A snapshot of a cluster of processes is taken and restored over HTTP; a front without a launcher refuses it."""

from __future__ import annotations

import os

import pytest

from anabranch.control.client import ControlClient
from anabranch.control.control_error import ControlError
from tests.anabranch.control.front.test_front_routes import Served, served
from tests.running import running

__all__ = ["served"]

WHOLE = bool(os.environ.get("ANABRANCH_INTEROP"))


async def test_front_without_a_launcher_refuses_snapshots_with_the_reason(served: Served) -> None:
    for method in ("POST", "DELETE"):
        status, reason = await served.refusal(method, "/v1/state/snapshots/before")
        assert (status, reason.partition(",")[0]) == (409, "this front has not started the nodes")
    requests = (await served.ask("GET", "/v1/capabilities"))["requests"]
    (row,) = [one for one in requests if one["name"] == "POST /v1/state/snapshots/{name}/restore"]
    assert row["reason"] == reason


@pytest.mark.interop
@pytest.mark.processes
@pytest.mark.zookeeper
@pytest.mark.parametrize("zookeeper", ["built-in", "local"])
def test_restored_processes_have_the_records_and_topics_of_the_snapshot(zookeeper: str) -> None:
    if not WHOLE:
        pytest.skip("not `make interop`: a snapshot of node processes, a minute, was NOT taken")
    with running("up", "--processes", "--zookeeper", zookeeper, "--port", "0", "--control", "127.0.0.1:0") as ready:
        control = ControlClient(ready["control"])
        control.create_topic("kept", 1)
        control.produce("kept", "before")
        taken = control.ask("POST", "/v1/state/snapshots/before", patience_s=300)
        assert taken["running"] == [1, 2, 3] and taken["bytes"] > 0
        control.wait_for(topic="kept", isr="3+", timeout_s=60)
        control.produce("kept", "after")
        control.create_topic("later", 1)
        control.ask("POST", "/v1/state/snapshots/before/restore", patience_s=300)
        control.wait_for(topic="kept", isr="3+", timeout_s=60)
        assert [one["topic"] for one in control.ask("GET", "/v1/topics")] == ["kept"]
        records = control.ask("GET", "/v1/topics/kept/records?partition=0")["records"]
        assert [one["value"] for one in records] == ["before"]
        control.ask("DELETE", "/v1/state/snapshots/before")
        with pytest.raises(ControlError, match="there is no snapshot before"):
            control.ask("POST", "/v1/state/snapshots/before/restore")
