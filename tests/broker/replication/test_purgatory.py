"""Requests wait for a change of a partition, up to their timeout."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.broker.replication.partition import Role
from anabranch.broker.replication.purgatory import DelayedProduce, Purgatory
from anabranch.protocol.errors import ErrorCode
from tests.compiled_parts import stands_in_for

pytestmark = stands_in_for("anabranch.broker.replication.purgatory")


class Partition(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]


def partition(**changes: Any) -> Any:
    state = {"role": Role.LEADER, "terms": 1, "high_watermark": 5, "maximal_isr": (1, 2), "effective_min_isr": 2}
    return Partition(**{**state, **changes})


@pytest.mark.parametrize(
    ("changes", "required", "code"),
    [
        ({}, 5, ErrorCode.NONE),
        ({}, 6, None),
        ({"role": Role.FOLLOWER}, 5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"maximal_isr": (1,)}, 5, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        ({"maximal_isr": (1,)}, 6, None),
    ],
)
def test_delayed_produce_completes_with_the_code_of_the_partition(
    changes: dict[str, Any], required: int, code: ErrorCode | None
) -> None:
    wait = DelayedProduce(partition(**changes), required)
    assert wait.is_complete() is (code is not None)
    assert wait.code is code


def test_delayed_produce_fails_once_the_leadership_was_lost_and_regained() -> None:
    one = partition()
    wait = DelayedProduce(one, 5)
    one.terms = 2
    assert wait.is_complete() and wait.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_completed_delayed_produce_keeps_its_code() -> None:
    one = partition()
    wait = DelayedProduce(one, 5)
    assert wait.is_complete()
    one.role = Role.FOLLOWER
    assert wait.is_complete() and wait.code is ErrorCode.NONE


async def test_request_waits_for_all_its_appends() -> None:
    rooms, first, second = Purgatory(), partition(high_watermark=0), partition(high_watermark=0)
    waits = [DelayedProduce(one, 5) for one in (first, second, first)]
    waiting = asyncio.ensure_future(rooms.wait_replicated(waits, 60_000))
    await asyncio.sleep(0)
    first.high_watermark = 5
    rooms.produces.check(first)
    await asyncio.sleep(0)
    assert not waiting.done()
    second.high_watermark = 5
    rooms.produces.check(second)
    await asyncio.wait_for(waiting, 60)
    assert {wait.code for wait in waits} == {ErrorCode.NONE}
    rooms.close()


async def test_request_times_out_and_is_removed() -> None:
    rooms, one = Purgatory(), partition(high_watermark=0)
    wait = DelayedProduce(one, 5)
    async with asyncio.timeout(60):
        await rooms.wait_replicated([wait], 0)
        await rooms.wait_replicated([wait], 5)
    assert wait.code is None and len(rooms.produces) == 0
    rooms.close()


@pytest.mark.parametrize("count", [1, 2])
async def test_cancelled_request_is_removed(count: int) -> None:
    rooms = Purgatory()
    waits = [DelayedProduce(partition(high_watermark=0), 5) for _ in range(count)]
    waiting = asyncio.ensure_future(rooms.wait_replicated(waits, 60_000, settling=True))
    await asyncio.sleep(0)
    assert len(rooms.produces) == 1
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled() and len(rooms.produces) == 0
    rooms.close()


async def test_closing_completes_every_operation() -> None:
    rooms, one = Purgatory(), partition()
    parked = [
        asyncio.ensure_future(rooms.wait(room, (one,), 60_000, lambda _: False))
        for room in (rooms.produces, rooms.fetches, rooms.deletions)
    ]
    await asyncio.sleep(0)
    rooms.close()
    await asyncio.wait_for(asyncio.gather(*parked), 60)
