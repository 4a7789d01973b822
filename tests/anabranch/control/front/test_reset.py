"""A reset leaves a cluster of processes without topics, groups, transactions and rules, and with all nodes running."""

from __future__ import annotations

import asyncio

import pytest

from anabranch import Consumer, Producer
from anabranch.control.actions import ActionRefused
from anabranch.control.front import reset as module
from anabranch.control.front.reset import reset
from anabranch.faults.rule import Rule
from tests.anabranch.control.front.fronts import on_agents

SMALL = {
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "1",
}


async def test_reset_ends_groups_with_members_open_transactions_topics_and_rules() -> None:
    async with on_agents(journal=100, **SMALL) as on:
        front, servers = on.front, on.agents[1].bootstrap_servers
        await on.with_topic("t")
        producer = Producer(servers, transactional_id="till")
        async with producer, Consumer("t", bootstrap_servers=servers, group_id="tills") as consumer:
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"x")
            await consumer.seek_to_beginning()
            await consumer.getmany(timeout_ms=0)
            await front.rules.add(Rule(name="slow", api=("Metadata",), delay_ms=(1.0,)))
            before = await front.state()
            assert before["topics"] and before["groups"][0]["members"] and before["transactions"]
            async with asyncio.timeout(60):
                await reset(front)
            after = await front.state()  # the consumer may have joined again
            assert [one for one in after["topics"] if not one["topic"].startswith("__")] == []
            assert after["transactions"] == []
            members = [member for group in after["groups"] for member in group["members"]]
            assert before["groups"][0]["members"][0] not in members
            assert await front.rules.rows() == []
            query = {"api": "Produce"}
            assert await front.ask_each(lambda one: one.ask("GET", "/v1/journal", query=query)) == {1: [], 2: []}
        await front.settle()
        assert "reset" in [one.kind for one in front.events.after(0)]
        await on.with_topic("t")


async def test_reset_thaws_frozen_nodes_and_starts_dead_ones_first() -> None:
    async with on_agents() as on:
        done: list[str] = []

        async def thaw(node_id: int) -> None:
            done.append(f"thaw {node_id}")
            on.nodes[node_id].frozen = False

        async def start(node_id: int) -> None:
            done.append(f"start {node_id}")
            on.nodes[node_id].running = True

        vars(on.actions).update(thaw=thaw, start=start)
        on.nodes[1].frozen, on.nodes[2].running = True, False
        await reset(on.front)
        assert done == ["thaw 1", "start 2"]


async def test_reset_that_takes_too_long_says_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESET_S", 0.0)
    async with on_agents() as on:
        with pytest.raises(ActionRefused, match="its nodes do not all run"):
            await reset(on.front)
