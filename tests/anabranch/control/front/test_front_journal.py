"""The journals of all nodes are one: queries, waits, explanations, captures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from anabranch.clients.connection import Connection
from anabranch.control.actions import UnknownNode
from anabranch.control.front.front_journal import (
    clear_journal,
    explain_exchange,
    get_capture,
    get_journal,
    wait_for_exchanges,
)
from anabranch.control.route import ControlRequest, WaitTimedOut
from anabranch.faults.rule_json import InvalidRule
from anabranch.journal.capture import capture as capture_of
from anabranch.journal.recording import read_recording
from anabranch.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from tests.anabranch.control.front.fronts import OnAgents, on_agents

SECTION = b"\x0a\x0d\x0d\x0a"


@pytest.fixture
async def on() -> AsyncIterator[OnAgents]:
    async with on_agents(journal=100) as one, asyncio.timeout(60):
        await one.with_topic()
        for node in (1, 2, 1):
            await one.metadata_error(node)
        yield one


def asked(number: object = "", **query: str) -> ControlRequest:
    return ControlRequest({"number": str(number)}, query, {})


async def exchanges(on: OnAgents, **query: str) -> list[Any]:
    return await get_journal(on.front, asked(api="Metadata", client_id="test", **query))


async def test_exchanges_of_all_nodes_are_in_the_order_of_their_times(on: OnAgents) -> None:
    found = await exchanges(on)
    assert [one["node"] for one in found] == [1, 2, 1]
    assert [one["number"] for one in found] == sorted({one["number"] for one in found})
    assert await exchanges(on, after=str(found[0]["number"])) == found[1:]
    assert await exchanges(on, limit="2") == found[1:]
    assert await exchanges(on, limit="3") == found
    assert await exchanges(on, brokers="2") == found[1:2]
    assert found[0]["request"] and "bytes" not in found[0]


async def test_query_that_no_exchange_can_match_is_refused(on: OnAgents) -> None:
    with pytest.raises(InvalidRule, match="there is no broker 7; there are 1, 2"):
        await exchanges(on, brokers="7")
    with pytest.raises(InvalidRule, match="unknown filters: colour"):
        await exchanges(on, colour="red")


async def test_wait_counts_the_exchanges_of_all_nodes(on: OnAgents) -> None:
    words = {"api": "Metadata", "client_id": "test"}
    with pytest.raises(WaitTimedOut, match=r"after 0.1 s 3 of 4 such exchanges"):
        await wait_for_exchanges(on.front, asked(count="4", timeout="0.1", **words))
    waiting = asyncio.create_task(wait_for_exchanges(on.front, asked(count="4", timeout="30", **words)))
    await on.metadata_error(2)
    assert [one["node"] for one in await waiting] == [1, 2, 1, 2]
    with pytest.raises(ValueError, match="count is a number"):
        await wait_for_exchanges(on.front, asked(count="x"))


async def test_exchange_is_explained_with_the_events_of_other_nodes(on: OnAgents) -> None:
    """Node 1 is the controller, and only a controller reports its election."""
    topic = CreatableTopic(name="x", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    connection = await Connection.open("127.0.0.1", on.agents[2].node.port, client_id="test")
    try:
        await connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000))
    finally:
        await connection.close()
    (refused,) = await get_journal(on.front, asked(api="CreateTopics", client_id="test"))
    assert (refused["node"], refused["errors"]) == (2, ["NOT_CONTROLLER"])
    row = await explain_exchange(on.front, asked(refused["number"]))
    assert row["number"] == refused["number"]
    assert "was refused with NOT_CONTROLLER for x: broker 1 became the controller" in row["explained"][0]


@pytest.mark.parametrize("number", ["x", "12", "63", "64"])
async def test_exchange_that_is_not_kept_is_not_explained(on: OnAgents, number: str) -> None:
    with pytest.raises(UnknownNode, match=f"no exchange {number} is kept on a node that runs"):
        await explain_exchange(on.front, asked(number))


async def test_exchange_of_a_node_that_does_not_answer_is_not_explained(on: OnAgents) -> None:
    found = await exchanges(on)
    on.nodes[1].frozen = True
    with pytest.raises(UnknownNode):
        await explain_exchange(on.front, asked(found[0]["number"]))
    assert [one["node"] for one in await exchanges(on)] == [2]


async def test_all_journals_are_cleared(on: OnAgents) -> None:
    assert await clear_journal(on.front, asked()) == {}
    assert await exchanges(on) == []


async def test_capture_has_a_section_for_each_node() -> None:
    async with on_agents(journal=100, frames=True) as on, asyncio.timeout(60):
        await on.with_topic()
        for node in (1, 2):
            await on.metadata_error(node)
        capture = await get_capture(on.front, asked(api="Metadata", client_id="test"))
        assert capture.startswith(SECTION) and capture.count(SECTION) == 2
        last = await get_capture(on.front, asked(api="Metadata", client_id="test", limit="1"))
        (exchange,) = read_recording(last)
        assert exchange.node_id == 2, "it was asked last"
        (row,) = await exchanges(on, limit="1")
        after = asked(api="Metadata", client_id="test", after=str(row["number"]))
        assert await get_capture(on.front, after) == capture_of([], 0.0)
        assert (await exchanges(on, bytes="true"))[0]["bytes"]["request"]
