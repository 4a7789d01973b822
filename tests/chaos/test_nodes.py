"""A node's process is found by its arguments."""

from __future__ import annotations

import os

import pytest

from anabranch.chaos import nodes
from anabranch.chaos.nodes import FoundNode, NotFound, find_node
from anabranch.cluster.processes import is_stopped


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (("node", "--id", "3"), "3"),
        (("node", "--id=4"), "4"),
        (("node", "--id"), ""),
        (("node", "--idle", "3"), ""),
        ((), ""),
    ],
)
def test_option_value_is_found_in_command_line(words: tuple[str, ...], value: str) -> None:
    assert nodes.option(words, "--id") == value


def node(node_id: int, zookeeper: str, data_dir: str) -> FoundNode:
    return FoundNode(node_id, os.getpid(), zookeeper, ("node", "--data-dir", data_dir))


def test_cluster_is_selected_by_ensemble_or_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = node(1, "zk:1", "/a/node-1"), node(1, "zk:2", "/b/node-1")
    monkeypatch.setattr(nodes, "running_nodes", lambda: [one, other, node(2, "zk:2", "/b/node-2")])
    assert find_node(1, cluster="zk:1") is one
    assert find_node(1, cluster="/b/../b") is other
    assert find_node(2).node_id == 2
    with pytest.raises(NotFound, match=r"(?s)several running nodes have id 1.*/a: nodes 1.*/b: nodes 1, 2"):
        find_node(1)
    with pytest.raises(NotFound, match="no running node in zk:1 has id 2"):
        find_node(2, cluster="zk:1")


def test_own_process_is_no_node_and_not_stopped() -> None:
    assert os.getpid() not in {one.pid for one in nodes.running_nodes()}
    assert not is_stopped(os.getpid())
