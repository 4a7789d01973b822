"""A front merges what its nodes report, waits for conditions on it, and survives nodes that do not answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.control_error import ControlError
from anabranch.control.front import front as module
from anabranch.control.front.event_order import NodeEvent
from anabranch.control.front.front import FRONT
from anabranch.control.front.front_routes import shift_clock
from anabranch.control.front.reset import reset
from anabranch.control.lease import LEASE_S
from anabranch.control.route import ControlRequest
from anabranch.control.wait_conditions import condition
from anabranch.faults.rule import Rule
from tests.anabranch.control.front.fronts import OnAgents, front_of, on_agents


async def test_state_has_both_replicas_and_the_leaders_high_watermark() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        await on.with_topic(replicas=2)
        async with on.front.producer() as producer:
            await producer.send_and_wait("t", b"x")
        assert not await on.front.wait(
            condition({"topic": "t", "partition": "0", "high_watermark": "1", "isr": "2+"}), 30
        )
        state = await on.front.state()
        (topic,) = [one for one in state["topics"] if one["topic"] == "t"]
        (partition,) = topic["partitions"]
        assert partition["replicas"] == [{"node": one, "start": 0, "end": 1} for one in partition["isr"]]
        assert [one["running"] for one in state["nodes"]] == [True, True]
        assert sum(bool(one.get("controller")) for one in state["nodes"]) == 1


async def test_each_leader_is_one_event_though_both_nodes_report_it() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        await on.with_topic(partitions=3, replicas=2)
        await on.front.settle()
        found = [
            (one.detail["partition"], one.detail["leader_epoch"])
            for one in on.front.events.after(0)
            if one.kind == "leader" and one.detail["topic"] == "t"
        ]
        assert sorted(found) == [(0, 0), (1, 0), (2, 0)]
        times_s = [one.at_s for one in on.front.events.after(0) if one.kind == "leader"]
        assert max(times_s) <= asyncio.get_running_loop().time()


async def test_wait_that_times_out_names_the_unmet_part() -> None:
    async with on_agents(1) as on, asyncio.timeout(60):
        assert await on.front.wait(condition({"topic": "none"}), 0) == "there is no topic none"
        waiting = asyncio.create_task(on.front.wait(condition({"topic": "t"}), 30))
        await on.with_topic()
        assert await waiting == ""


async def test_node_whose_agent_does_not_accept_the_front_has_no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UP_S", 0.3)
    async with on_agents(1) as on, asyncio.timeout(60), front_of(on.agents, wait=False) as second:
        with pytest.raises(ActionRefused, match=f"node 1 has no rules yet: front {on.front.name} controls this node"):
            await second.front.wait_up(1)


async def test_lease_is_renewed_though_another_node_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    renewed = []
    monkeypatch.setattr(module, "RENEW_S", 0.01)

    async with on_agents() as on, asyncio.timeout(60):
        client = on.front.links[1].client
        ask = client.ask

        async def ask_in_vain(method: str, path: str, *arguments: Any, **options: Any) -> Any:
            if (method, path) == ("POST", module.LEASE):
                await asyncio.Event().wait()
            return await ask(method, path, *arguments, **options)

        monkeypatch.setattr(client, "ask", ask_in_vain)
        lease = on.agents[2].agent._lease
        renew = lease.renew
        monkeypatch.setattr(lease, "renew", lambda *one: (renewed.append(one), renew(*one))[1])
        while len(renewed) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_node_that_does_not_answer_is_left_out_of_the_state() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        await on.with_topic(replicas=2)
        on.nodes[1].frozen = True
        on.nodes[2].running, on.nodes[2].refusal = False, "node 2 runs on elsewhere"
        frozen, down = await on.front.nodes()
        assert ("refused" in frozen, down["refused"]) == (False, "node 2 runs on elsewhere")
        assert (frozen["running"], frozen["frozen"], "connections" in frozen) == (True, True, False)
        assert (down["running"], "frozen" in down) == (False, False)


async def test_own_events_are_ordered_with_those_of_nodes() -> None:
    async with on_agents(1) as on, asyncio.timeout(60):
        await on.front.settle()
        newest, now_s = on.front.events.newest, asyncio.get_running_loop().time()
        on.front.publish("second", node=1)
        on.front._on_event(NodeEvent(1, now_s - 0.01, "first", {}))
        await on.front.settle()
        first, second = on.front.events.after(newest)
        assert (first.kind, first.at_s, second.kind) == ("first", now_s - 0.01, "second")


async def test_last_hit_of_a_node_that_has_ended_is_known_by_its_event() -> None:
    async with on_agents(1) as on, asyncio.timeout(60):
        await on.front.rules.add(Rule(name="s", step=("elect",), node="kill", times=1))
        for at_s in (0.0, asyncio.get_running_loop().time()):  # the first is of an earlier rule of this name
            on.front._on_event(NodeEvent(1, at_s, "fault", {"rule": "s", "node": 1, "hits": 1, "step": "elect"}))
        await on.front._on_down(on.front.links[1])
        (row,) = await on.front.rules.rows()
        assert (row["met"], row["hits"], row["spent"]) == (1, 1, True)
        await on.front.settle()
        assert [one.detail["hits"] for one in on.front.events.after(0) if one.kind == "fault"] == [1, 1]


async def test_rule_that_nodes_decide_is_taken_away_when_its_hits_are_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RENEW_S", 600.0)
    async with on_agents() as on, asyncio.timeout(60):
        await on.front.rules.add(Rule(name="d", disk="full", times=1))
        assert [len(agent.agent.faults) for agent in on.agents.values()] == [1, 1]
        now_s = asyncio.get_running_loop().time()
        on.front._on_event(NodeEvent(1, now_s, "fault", {"rule": "d", "node": 1, "hits": 1, "disk": "write"}))
        async with asyncio.timeout(LEASE_S / 2):  # the end of the lease would remove it, too
            while any(len(agent.agent.faults) for agent in on.agents.values()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        (row,) = await on.front.rules.rows()
        assert (row["hits"], row["spent"], "waiting_for" in row) == (1, True, False)


async def test_front_follows_the_events_of_a_node_from_the_beginning() -> None:
    async with on_agents(1) as on, asyncio.timeout(60):
        await on.with_topic()
        await on.front.settle()
        first = [one.kind for one in on.front.events.after(0)]
        assert "elected" in first and on.front.links[1].pid > 0 and FRONT < 0
        on.agents[1].agent.end_lease(on.front.name)
        async with front_of(on.agents) as later:
            await later.front.settle()
            assert [one.kind for one in later.front.events.after(0)][: len(first)] == first


async def test_shifted_clock_is_given_to_a_node_again_and_ends_with_the_lease() -> None:
    async with on_agents(2) as on, asyncio.timeout(60):
        node = on.agents[2].node
        with pytest.raises(UnknownNode, match="there is no node 9"):
            await ask(on, "9", "5m")
        assert (await ask(on, "2", "5m"))["clock_offset_ms"] == 300_000
        assert node.services.clock_ms() - on.agents[1].node.services.clock_ms() > 299_000
        node.clock.offset_ms = 0  # as in a new process
        await on.front.catch_up(2)
        assert node.clock.offset_ms == 300_000
        await reset(on.front)
        assert node.clock.offset_ms == 0
        await ask(on, "2", -30)
        assert node.clock.offset_ms == -30_000
        on.agents[2].agent.end_lease(on.front.name)
        assert node.clock.offset_ms == 0
        with pytest.raises(ControlError, match="front"):
            await on.agents[2].ask("POST", "/v1/agent/clock?front=another", {"offset": "1s"})


async def ask(on: OnAgents, node: str, offset: str | float) -> Any:
    request = ControlRequest(words={"node": node}, query={}, body={"offset": offset})
    return await shift_clock(on.front, request)
