"""Rules of a front: counted over all nodes, given to nodes that return, taken away with the front."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.control.actions import UnknownNode
from anabranch.control.front.agent_client import AgentUnreachable
from anabranch.control.route import WaitTimedOut
from anabranch.faults.rule import Rule
from anabranch.faults.rule_json import InvalidRule
from anabranch.protocol.errors import ErrorCode
from tests.anabranch.control.front.fronts import agents_of, front_of, on_agents

REFUSED = int(ErrorCode.LEADER_NOT_AVAILABLE)
METADATA = Rule(name="r", api=("Metadata",), topic=("t",), error="LEADER_NOT_AVAILABLE")


def rule(**fields: object) -> Rule:
    return Rule(**{"name": "r", "api": ("Metadata",), "topic": ("t",), **fields})


async def test_times_counts_the_requests_of_all_nodes_together() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        await on.with_topic()
        await on.front.rules.add(rule(error="LEADER_NOT_AVAILABLE", times=2, after=1))
        assert [await on.metadata_error(one) for one in (1, 2, 1, 2)] == [0, REFUSED, REFUSED, 0]
        row = await on.front.rules.row("r")
        assert (row["hits"], row["spent"], row["removed"]) == (2, True, False)
        assert (await on.front.rules.wait_hits("r", 2, 10))["hits"] == 2


async def test_rule_applies_while_one_that_nodes_decide_has_hits_left() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        await on.with_topic()
        first = await on.front.rules.add(Rule(name="first", step=("resize:after-plan",), node="kill", times=2))
        await on.front.rules.add(rule(error="LEADER_NOT_AVAILABLE", while_rule="first"))
        assert await on.metadata_error(1) == REFUSED and not first["spent"]
        for node_id in (1, 2):
            on.front.rules.on_hit("first", node_id, asyncio.get_running_loop().time())
        assert [await on.metadata_error(one) for one in (1, 2)] == [0, 0]


async def test_hits_of_a_rule_that_nodes_decide_are_added_up() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        await on.with_topic()
        await on.front.rules.add(METADATA)
        with pytest.raises(WaitTimedOut, match="after 0 s rule r matched no request"):
            await on.front.rules.wait_hits("r", 1, 0)
        waiting = asyncio.create_task(on.front.rules.wait_hits("r", 3, 30))
        assert [await on.metadata_error(one) for one in (1, 2, 2)] == [REFUSED] * 3
        row = await waiting
        assert (row["met"], row["hits"]) == (3, 3)
        with pytest.raises(WaitTimedOut, match="rule r has hit 3 of 3 matching requests"):
            await on.front.rules.wait_hits("r", 4, 0)


@pytest.mark.parametrize("times", [0, 2])
async def test_wait_for_hits_that_cannot_come_ends_at_once(times: int) -> None:
    async with on_agents() as on, asyncio.timeout(20):
        await on.front.rules.add(rule(hold=True, times=times))
        waiting = asyncio.create_task(on.front.rules.wait_hits("r", 3, 600))
        await asyncio.sleep(0)
        if not times:
            await on.front.rules.remove("r")
        with pytest.raises(WaitTimedOut, match="rule r matched no request, and can hit no more"):
            await waiting


async def test_hits_of_all_nodes_are_numbered_in_events() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        await on.with_topic()
        await on.front.rules.add(METADATA)
        for one in (1, 2):
            await on.metadata_error(one)
        while len(found := [one for one in on.front.events.after(0) if one.kind == "fault"]) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert [(one.detail["node"], one.detail["hits"]) for one in found] == [(1, 1), (2, 2)]


async def test_held_requests_of_all_nodes_are_released() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        await on.with_topic()
        await on.front.rules.add(rule(hold=True, times=2))
        asked = [asyncio.create_task(on.metadata_error(one)) for one in (1, 2)]
        assert (await on.front.rules.wait_hits("r", 2, 30))["held"] == 2
        assert not any(one.done() for one in asked)
        assert (await on.front.rules.release("r"))["held"] == 2
        assert await asyncio.gather(*asked) == [0, 0]


async def test_removal_releases_what_a_rule_holds_and_its_last_row_is_kept() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        await on.with_topic()
        await on.front.rules.add(rule(hold=True))
        asked = asyncio.create_task(on.metadata_error(2))
        await on.front.rules.wait_hits("r", 1, 30)
        row = await on.front.rules.remove("r")
        assert (row["hits"], row["removed"]) == (1, True)
        assert await asked == 0
        assert await on.front.rules.rows() == []
        assert [one["name"] for one in await on.front.rules.rows(removed=True)] == ["r"]
        for refused in (on.front.rules.row("r"), on.front.rules.release("r"), on.front.rules.remove("r")):
            with pytest.raises(UnknownNode, match="there is no rule r; there are none"):
                await refused


async def test_rule_for_a_node_that_cannot_answer_waits_for_it() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        await on.with_topic()
        on.nodes[2].frozen = True
        assert (await on.front.rules.add(METADATA))["waiting_for"] == [2]
        assert [await on.metadata_error(one) for one in (1, 2)] == [REFUSED, 0]
        on.nodes[2].frozen = False
        await on.front.catch_up(2)
        assert "waiting_for" not in await on.front.rules.row("r")
        assert await on.metadata_error(2) == REFUSED


async def test_node_that_could_not_be_asked_loses_the_rules_of_the_meantime() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        await on.front.rules.add(METADATA)
        on.nodes[2].frozen = True
        await on.front.rules.remove("r")
        assert [len(agent.agent.faults) for agent in on.agents.values()] == [0, 1]
        on.nodes[2].frozen = False
        await on.front.catch_up(2)
        assert len(on.agents[2].agent.faults) == 0


async def test_node_that_was_cut_off_gets_released_rules_released() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        await on.with_topic()
        on.nodes[2].frozen = True
        await on.front.rules.add(rule(hold=True))
        await on.front.rules.release("r")
        on.nodes[2].frozen = False
        await on.front.catch_up(2)
        assert await on.metadata_error(2) == 0


async def test_rule_is_given_to_the_nodes_that_it_is_about_only() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        row = await on.front.rules.add(rule(brokers=(2,), delay_ms=(1.0,)))
        assert "waiting_for" not in row
        assert [len(agent.agent.faults) for agent in on.agents.values()] == [0, 1]


async def test_rule_that_a_node_refuses_is_on_no_node() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        with pytest.raises(InvalidRule, match="unknown listener 'NOPE'"):
            await on.front.rules.add(rule(listener="NOPE", delay_ms=(1.0,)))
        with pytest.raises(InvalidRule, match="unknown API"):
            await on.front.rules.add(rule(api=("Metdata",), delay_ms=(1.0,)))
        assert await on.front.rules.rows(removed=True) == []
        assert [len(agent.agent.faults) for agent in on.agents.values()] == [0, 0]
        await on.front.rules.add(rule(delay_ms=(1.0,)))
        with pytest.raises(InvalidRule, match="rule r already exists"):
            await on.front.rules.add(rule(delay_ms=(1.0,)))


async def test_rule_that_one_node_refuses_is_taken_from_the_others() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        on.agents[2].agent.add_rule(METADATA)
        with pytest.raises(InvalidRule, match="rule r already exists"):
            await on.front.rules.add(METADATA)
        assert [len(agent.agent.faults) for agent in on.agents.values()] == [0, 1]


async def test_rule_waits_for_a_node_that_has_no_lease_yet() -> None:
    """A new process answers, and the front has not noticed that the old one has ended."""
    async with on_agents() as on, asyncio.timeout(60):
        on.agents[2].agent._lease.end()
        assert (await on.front.rules.add(METADATA))["waiting_for"] == [2]
        assert [len(agent.agent.faults) for agent in on.agents.values()] == [1, 0]
        await on.front.catch_up(2)
        assert "waiting_for" not in await on.front.rules.row("r")
        assert [len(agent.agent.faults) for agent in on.agents.values()] == [1, 1]
        await on.front.rules.remove("r")
        assert [len(agent.agent.faults) for agent in on.agents.values()] == [0, 0]


async def test_rule_is_not_given_again_because_of_an_old_list(caplog: pytest.LogCaptureFixture) -> None:
    """A list of a node's rules that is older than a new rule lacks it."""
    async with on_agents() as on, asyncio.timeout(60):
        await on.front.rules.add(METADATA)
        await on.front.rules.reconcile(on.front.links[2], ())
        assert "refuses" not in caplog.text
        await on.front.rules.remove("r")
        assert [len(agent.agent.faults) for agent in on.agents.values()] == [0, 0]


async def test_rule_whose_request_is_cancelled_is_taken_from_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_agents() as on, asyncio.timeout(60):
        client, given = on.front.links[2].client, asyncio.Event()
        ask = client.ask

        async def ask_late(method: str, path: str, *arguments: Any, **options: Any) -> Any:
            row = await ask(method, path, *arguments, **options)
            if method == "POST":
                given.set()
                await asyncio.Event().wait()  # until the request is cancelled
            return row

        monkeypatch.setattr(client, "ask", ask_late)
        adding = asyncio.create_task(on.front.rules.add(METADATA))
        await given.wait()
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        assert await on.front.rules.rows() == []
        assert [len(agent.agent.faults) for agent in on.agents.values()] == [0, 0]


async def test_rule_whose_response_is_lost_is_removed_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_agents() as on, asyncio.timeout(60):
        client = on.front.links[2].client
        ask = client.ask

        async def ask_in_vain(method: str, path: str, *arguments: Any, **options: Any) -> Any:
            row = await ask(method, path, *arguments, **options)
            if method == "POST":
                raise AgentUnreachable("the control agent does not answer in 5 s")
            return row

        monkeypatch.setattr(client, "ask", ask_in_vain)
        await on.front.rules.add(METADATA)
        assert [len(agent.agent.faults) for agent in on.agents.values()] == [1, 1]
        await on.front.rules.remove("r")
        assert [len(agent.agent.faults) for agent in on.agents.values()] == [0, 0]


async def test_action_on_another_node_is_carried_out_by_the_front() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        await on.with_topic()
        await on.front.rules.add(rule(node="kill", on=(2,), times=1))
        assert await on.metadata_error(1) == 0
        await on.front.rules.wait_hits("r", 1, 30)
        await on.front.rules.actions.wait_settled()
        assert on.actions.done == [("kill", 2)]


async def test_nodes_that_a_rule_froze_go_on_when_it_is_released() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        await on.hit_once(rule(node="freeze", on=(2,), times=1))
        await on.front.rules.release("r")
        assert on.actions.done == [("freeze", 2), ("thaw", 2)]


async def test_session_that_a_rule_suspended_goes_on_when_the_rule_is_removed() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        await on.hit_once(rule(node="suspend", on=(2,), times=1))
        await on.front.rules.remove("r")
        await on.front.rules.actions.wait_settled()
        assert on.actions.done == [("suspend_session", 2), ("resume_session", 2)]


async def test_session_that_was_suspended_on_request_is_not_resumed_by_a_rule() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        await on.hit_once(rule(node="suspend", on=(2,), times=1))
        on.actions.suspended_on_request.add(2)
        await on.front.rules.remove("r")
        await on.front.rules.actions.wait_settled()
        assert on.actions.done == [("suspend_session", 2)]


async def test_node_that_was_frozen_on_request_is_not_resumed_by_a_rule() -> None:
    async with on_agents() as on, asyncio.timeout(60):
        on.actions.frozen_on_request.add(1)
        await on.front.rules.add(Rule(name="s", step=("create",), node="freeze"))
        await on.front.rules.remove("s")
        assert on.actions.done == [("thaw", 2)]


async def test_front_that_ends_leaves_no_rule_and_no_lease() -> None:
    async with agents_of(1) as agents, asyncio.timeout(60):
        async with front_of(agents) as on:
            await on.front.rules.add(METADATA)
            assert len(agents[1].agent.faults) == 1
        assert len(agents[1].agent.faults) == 0
        async with front_of(agents) as on:
            assert await on.front.rules.rows() == []


async def test_rule_of_a_lease_that_ended_is_given_again_with_the_next() -> None:
    async with on_agents(1) as on, asyncio.timeout(60):
        await on.with_topic()
        await on.front.rules.add(METADATA)
        on.agents[1].agent.end_lease(on.front.name)
        assert await on.metadata_error(1) == 0
        await on.front.catch_up(1)
        assert await on.metadata_error(1) == REFUSED


async def test_second_front_is_refused_with_the_name_of_the_first() -> None:
    async with on_agents(1) as on, asyncio.timeout(60), front_of(on.agents, wait=False) as second:
        await second.front.rules.add(METADATA)
        while not (refusal := second.front.links[1].refusal):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert f"front {on.front.name} controls this node" in refusal
        assert len(on.agents[1].agent.faults) == 0
