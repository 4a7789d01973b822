"""The groups that a resize plan names."""

from __future__ import annotations

from anabranch import Consumer
from anabranch.clients.stock_groups import group_line, stock_groups_of
from tests.broker.coordinators.gated_orders import orders
from tests.broker.coordinators.stock_members import GROUP, TOPIC, StockMember


async def test_stock_groups_are_identified_by_their_members() -> None:
    async with orders(2) as (cluster, admin, _):
        async with Consumer(
            TOPIC, bootstrap_servers=cluster.bootstrap_servers, group_id="ours", auto_offset_reset="earliest"
        ) as ours:
            await ours.getmany(timeout_ms=10_000)
            assert await stock_groups_of(admin.network, TOPIC) == []
        await StockMember(admin).take_part()
        (found,) = await stock_groups_of(admin.network, TOPIC)
        assert group_line(found) == f"the group {GROUP}: anabranch-admin/127.0.0.1"
        assert found.protocol == "range"
        assert await stock_groups_of(admin.network, "another") == []
