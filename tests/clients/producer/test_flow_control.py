"""A flush ends with the last record that was accepted before it."""

from __future__ import annotations

import asyncio

from anabranch.clients.producer.flow_control import Flush
from anabranch.clients.producer.producer_record import Record
from anabranch.clients.producer.routes import UNKEYED
from tests.clients.producer.world import Receipt


def records(*orders: int) -> list[Record]:
    return [Record(order, UNKEYED, None, None, (), 0, Receipt()) for order in orders]


async def test_later_records_neither_end_nor_delay_flush() -> None:
    flush = Flush(10, 3, asyncio.get_running_loop().create_future())
    flush.release(records(10, 7, 11, 12))
    flush.release(records(8, 13))
    assert not flush.finished.done()
    flush.release(records(9, 14))
    assert flush.finished.done()
    flush.release(records(15))  # it is not told twice
