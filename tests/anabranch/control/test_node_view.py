"""A node as a cluster of one, which knows the brokers of its metadata."""

from __future__ import annotations

import pytest

from anabranch.control.node_view import KnownNodes, NodeView
from tests.anabranch.control.agents import running_agent


async def test_view_has_one_node_at_its_bound_port() -> None:
    async with running_agent(3) as on:
        view = NodeView(on.node)
        assert (view.node_ids, list(view.nodes)) == ((3,), [3])
        assert view.address(3) == ("127.0.0.1", on.node.port)
        assert not view.is_frozen(3)
        with pytest.raises(KeyError):
            view.address(4)


async def test_known_nodes_lists_brokers_of_the_metadata_and_contains_any() -> None:
    known = KnownNodes(7)
    assert list(known) == [7] and 9 in known and len(known) == 1
    async with running_agent(3) as on:
        known.node = on.node
        assert list(known) == [3, 7] and len(known) == 2
