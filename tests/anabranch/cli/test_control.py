"""`anabranch control` breaks, awaits and repairs a cluster; errors are one line."""

from __future__ import annotations

import json

import pytest

from anabranch.cli.control import event_line, open_client
from anabranch.cluster.zookeeper import free_port
from tests.anabranch.cli.conftest import Command


def test_cluster_is_broken_and_repaired(url: str, anabranch: Command) -> None:
    def control(*words: str) -> str:
        result = anabranch("control", *words, "--control", url)
        assert result.exit_code == 0, result.output
        return result.output

    state = json.loads(control("state"))
    active = next(one["node"] for one in state["nodes"] if one["controller"])
    other = active % 3 + 1
    assert control("kill", str(other)) == f"node {other} is dead\n"
    assert control("start", str(other)) == f"node {other} runs\n"
    assert control("stop", str(other)) == f"node {other} has stopped\n"
    assert control("start", str(other)) == f"node {other} runs\n"
    assert control("session", "suspend", str(other)) == f"suspend: done for node {other}\n"
    assert control("session", "resume", str(other)) == f"resume: done for node {other}\n"
    assert control("session", "delay", str(other), "200ms") == f"delay: done for node {other}\n"
    assert control("session", "resume", str(other)) == f"resume: done for node {other}\n"
    assert control("session", "expire", str(active)) == f"expire: done for node {active}\n"
    assert control("wait", "controller=any", f"node={other}") == ""
    lines = control("events").splitlines()
    rows = [json.loads(line) for line in control("events", "--json", "--after", "1").splitlines()]
    assert len(rows) >= len(lines) - 1, "meanwhile there may be more"
    assert [one["number"] for one in rows] == list(range(2, len(rows) + 2))
    assert any("node killed" in line and f"node={other}" in line for line in lines)


def test_errors_are_explained(url: str, anabranch: Command) -> None:
    for words, code, reason in [
        (("start", "1"), 1, "node 1 is already running"),
        (("kill", "9"), 1, "there is no node 9"),
        (("wait", "topic=nowhere", "--timeout", "0"), 1, "after 0 s there is no topic nowhere"),
        (("wait", "topics=a"), 1, "unknown conditions topics"),
        (("wait", "topic"), 2, "a condition is NAME=VALUE"),
        (("session", "delay", "1"), 2, "`delay` needs a duration, such as 200ms"),
        (("session", "resume", "1", "200ms"), 2, "resume takes no duration"),
        (("session", "delay", "1", "2m"), 1, "the delay is 1ms to 60s, not 2m"),
        (("session", "resume", "1"), 1, "node 1 is not cut off from ZooKeeper, and nothing delays it"),
    ]:
        result = anabranch("control", *words, "--control", url)
        assert (result.exit_code, reason in result.output) == (code, True), result.output
    nobody = anabranch("control", "state", "--control", f"http://127.0.0.1:{free_port()}")
    assert (nobody.exit_code, "start the cluster with" in nobody.output) == (1, True)


def test_event_is_one_line() -> None:
    event = {"number": 7, "at": 12.3456, "kind": "leader", "topic": "t", "partition": 0, "leader": 2}
    assert event_line(event) == "     7        12.346  leader             topic=t  partition=0  leader=2"


def test_broken_pipe_is_not_reported_as_lost_cluster() -> None:
    with pytest.raises(BrokenPipeError), open_client("127.0.0.1:1", ""):
        raise BrokenPipeError
