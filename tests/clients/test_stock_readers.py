"""Which groups the plan of a resize names."""

from __future__ import annotations

from anabranch import Consumer
from anabranch.clients.stock_readers import stock_readers, told
from tests.broker.coordinators.stock_members import GROUP, TOPIC, StockMember
from tests.broker.coordinators.test_group_gates import orders


async def test_groups_are_named_by_their_members_that_hold_no_gates() -> None:
    async with orders(2) as (cluster, admin, _):
        async with Consumer(
            TOPIC, bootstrap_servers=cluster.bootstrap_servers, group_id="ours", auto_offset_reset="earliest"
        ) as ours:
            await ours.getmany(timeout_ms=10_000)
            assert await stock_readers(admin.network, TOPIC) == []
        await StockMember(admin).take_part()
        (found,) = await stock_readers(admin.network, TOPIC)
        assert told(found) == f"the group {GROUP}: anabranch-admin/127.0.0.1"
        assert found.protocol == "range"
        assert await stock_readers(admin.network, "another") == []
