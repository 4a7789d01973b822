"""A node gets its agent's address by its command line, and the token by its environment only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch.cluster.launched_agent import CONTROL_TOKEN, AgentOptions, LaunchedAgent
from anabranch.cluster.node_process import NodeProcess


def test_options_are_on_the_command_line_and_the_token_is_not() -> None:
    plain, full = (LaunchedAgent.new(4711, one) for one in (AgentOptions(), AgentOptions(1000, frames=True)))
    assert plain.url == "http://127.0.0.1:4711"
    assert plain.arguments() == ["--control", "127.0.0.1:4711"]
    assert full.arguments()[2:] == ["--control-journal", "1000", "--control-frames"]
    assert plain.environment() == {CONTROL_TOKEN: plain.token} != full.environment()
    assert len(plain.token) >= 32
    assert plain.token not in repr(plain)


@pytest.mark.parametrize("environment", [None, {"PATH": "/bin"}])
def test_node_with_an_agent_adds_the_token_to_its_environment(
    tmp_path: Path, environment: dict[str, str] | None
) -> None:
    node = NodeProcess(1, "broker", "127.0.0.1", 9092, tmp_path, "zk:2181", {}, environment=environment)
    node.agent = LaunchedAgent(4711, "secret", AgentOptions())
    assert "--control" in node.command() and not any("secret" in word for word in node.command())
    assert node._environment() == {**(os.environ if environment is None else environment), CONTROL_TOKEN: "secret"}
    node.agent = None
    assert node._environment() == environment
    assert "--control" not in node.command()
