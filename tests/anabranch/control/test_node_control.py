"""What a blocking test asks of a node, and how blocks end. `test_client` does it to a real cluster."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.control.node_control import NodeControl, Nodes
from tests.cases import for_each


class ControlPlane:
    """Notes requests; node 2 runs, or not."""

    def __init__(self, *, running: bool = True) -> None:
        self.requests: list[tuple[str, object]] = []
        self._running = running

    def ask(self, method: str, path: str, body: object = None) -> Any:
        if (method, path) == ("GET", "/v1/nodes"):
            return [{"node": 1, "running": not self._running}, {"node": 2, "running": self._running}]
        assert method == "POST"
        self.requests.append((path.removeprefix("/v1/nodes/2/"), body))
        return None


@for_each([True, False])
def test_running_is_that_of_the_node(running: bool) -> None:
    assert NodeControl(ControlPlane(running=running).ask, 2).running is running


def test_each_action_is_one_request() -> None:
    plane = ControlPlane()
    node = NodeControl(plane.ask, 2)
    for act in (node.kill, node.stop, node.start, node.freeze, node.thaw):
        act()
    for act in (node.expire_session, node.suspend_session, node.resume_session):
        act()
    node.shift_clock("-30s")
    node.delay_session("200ms")
    assert plane.requests == [
        *(("kill", None), ("stop", None), ("start", None), ("freeze", None), ("thaw", None)),
        *(("session/expire", None), ("session/suspend", None), ("session/resume", None)),
        *(("clock", {"offset": "-30s"}), ("session/delay", {"delay": "200ms"})),
    ]


@for_each([True, False])
def test_killed_node_is_started_again_unless_the_block_has_done_it(running: bool) -> None:
    plane = ControlPlane(running=running)
    with pytest.raises(ZeroDivisionError), NodeControl(plane.ask, 2).killed():
        assert plane.requests == [("kill", None)]
        raise ZeroDivisionError
    assert plane.requests[1:] == ([] if running else [("start", None)])


def test_frozen_node_is_thawed_after_a_failed_block() -> None:
    plane = ControlPlane()
    with pytest.raises(ZeroDivisionError), NodeControl(plane.ask, 2).frozen():
        assert plane.requests == [("freeze", None)]
        raise ZeroDivisionError
    assert plane.requests[1:] == [("thaw", None)]


def test_unknown_node_is_refused_with_the_known_ones() -> None:
    nodes = Nodes({one: NodeControl(ControlPlane().ask, one) for one in (1, 2, 3)})
    assert nodes[3].node_id == 3
    with pytest.raises(KeyError, match="no node 7; there are 1, 2, 3"):
        nodes[7]
