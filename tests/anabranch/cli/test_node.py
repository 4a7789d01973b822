"""`anabranch node` refuses control options that conflict, before it looks for ZooKeeper."""

from __future__ import annotations

import contextlib

import pytest

from anabranch.cli.node import agent_routes, control_endpoint
from anabranch.control.agent_routes import AGENT_ROUTES
from tests.anabranch.cli.conftest import Command

NODE = ("node", "--id", "1", "--zookeeper", "127.0.0.1:1", "--listen", "127.0.0.1:0")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--control-journal", "5"), "--control-journal needs --control"),
        (("--control-frames",), "--control-frames needs --control"),
        (("--control-token", "secret"), "--control-token needs --control"),
        (("--control", "127.0.0.1:0", "--control-frames"), "--control-frames needs --control-journal"),
        (("--control", "0.0.0.0:0"), "needs --control-token"),
        (("--control", "9190"), "--control takes HOST:PORT"),
    ],
)
def test_conflicting_control_options_are_refused(anabranch: Command, options: tuple[str, ...], says: str) -> None:
    done = anabranch(*NODE, *options)
    assert (done.exit_code, says in done.output) == (2, True), done.output


def test_endpoint_keeps_the_journal_options_for_the_agent() -> None:
    endpoint = control_endpoint("127.0.0.1:0", None, 7, frames=True, certificate=None)
    assert endpoint is not None
    with contextlib.closing(endpoint._listener):
        assert (endpoint.journal_size, endpoint.frames) == (7, True)
    assert agent_routes() is AGENT_ROUTES
