"""The agent of a node applies rules about requests, steps and disks, and keeps the node's journal and events."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.control.agent import ControlledNode
from anabranch.control.agent_address import pid_namespace
from anabranch.control.control_error import ControlError
from anabranch.controller.zk.memory import MemorySession
from anabranch.faults.dispatcher import FaultInjectingDispatcher
from anabranch.faults.rule import Rule
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.anabranch.control.agents import RunningAgent, running_agent


async def with_topic(on: RunningAgent, name: str = "t") -> None:
    async with Admin(on.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name=name, partitions=1)])
        await admin.wait_for_topic(name, replicas=1)


async def test_rule_hits_requests_of_the_node_and_appears_in_journal_and_events() -> None:
    async with running_agent(journal=100) as on, asyncio.timeout(60):
        await with_topic(on)
        await on.ask(
            "POST", "/v1/faults", {"api": "Metadata", "topic": "t", "error": "LEADER_NOT_AVAILABLE", "times": 1}
        )
        assert await on.metadata_error() == ErrorCode.LEADER_NOT_AVAILABLE
        assert await on.metadata_error() == 0
        (row,) = await on.ask("GET", "/v1/faults")
        assert (row["name"], row["met"], row["hits"], row["spent"]) == ("rule-1", 1, 1, True)
        (exchange,) = await on.ask("GET", "/v1/journal?rule=rule-1")
        assert exchange["api"] == "Metadata"
        kinds = [one["kind"] for one in await on.ask("GET", "/v1/events")]
        assert {"elected", "leader", "fault"} <= set(kinds)


async def test_without_a_rule_the_dispatcher_is_the_nodes_own() -> None:
    async with running_agent() as on:
        own = on.node.server.dispatcher
        assert not isinstance(own, FaultInjectingDispatcher)
        armed = on.agent.add_rule(Rule(name="r", api=("Produce",), delay_ms=(1.0,)))
        assert isinstance(on.node.server.dispatcher, FaultInjectingDispatcher)
        on.agent.faults.remove(armed.rule.name)
        assert on.node.server.dispatcher is own


async def test_rule_about_the_disk_fails_writes_of_the_node() -> None:
    async with running_agent() as on, asyncio.timeout(60):
        await with_topic(on)
        on.agent.add_rule(Rule(name="full", disk="full"))
        async with Producer(on.bootstrap_servers, delivery_timeout_ms=500) as producer:
            with pytest.raises((KafkaError, TimeoutError)):
                await producer.send_and_wait("t", b"x")
        assert on.agent.faults.get("full").hits


async def test_kill_at_a_step_sends_sigkill_to_the_process_before_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr("anabranch.control.agent_actions.os.kill", lambda pid, number: sent.append((pid, number)))
    async with running_agent() as on, asyncio.timeout(60):
        assert not on.agent.awaits_steps()
        await on.ask("POST", "/v1/faults", {"step": "create", "node": "kill", "times": 1})
        assert on.agent.awaits_steps()
        await with_topic(on)
        assert sent == [(os.getpid(), signal.SIGKILL)]
        assert not on.agent.awaits_steps()


async def test_state_topics_groups_and_nodes_are_those_that_the_node_sees() -> None:
    async with running_agent() as on, asyncio.timeout(60):
        await with_topic(on)
        (node,) = await on.ask("GET", "/v1/nodes")
        assert (node["node"], node["port"], node["running"], node["controller"]) == (1, on.node.port, True, True)
        state = await on.ask("GET", "/v1/state")
        assert [one["topic"] for one in state["topics"]] == ["t"]
        assert (await on.ask("GET", "/v1/topics/t"))["partitions"][0]["replicas"] == [{"node": 1, "start": 0, "end": 0}]
        assert await on.ask("GET", "/v1/groups") == []


async def test_spare_controller_shows_itself_and_no_topics() -> None:
    async with running_agent(100, ("controller",)) as on, asyncio.timeout(60):
        state = await on.ask("GET", "/v1/state")
        assert [one["node"] for one in state["nodes"]] == [100]
        assert (state["topics"], state["groups"], state["transactions"]) == ([], [], [])
        rows = (await on.ask("GET", "/v1/watch"))["rows"]
        assert rows["node/100"]["node"] == 100


async def test_agent_tells_its_process_and_both_clocks() -> None:
    async with running_agent() as on:
        row = await on.ask("GET", "/v1/agent")
        assert (row["node"], row["pid"], row["host"]) == (1, os.getpid(), socket.gethostname())
        assert abs(row["at"] - asyncio.get_running_loop().time()) < 60
        assert abs(row["now_ms"] - on.node.services.clock_ms()) < 60_000


async def test_address_is_in_zookeeper_without_the_token_and_again_after_the_session_expired() -> None:
    async with running_agent() as on, asyncio.timeout(60):
        path = "/anabranch/control/1"
        before = on.node.session
        data, stat = await before.get(path)
        shown = {"url": on.url, "pid": os.getpid(), "host": socket.gethostname(), "pid_namespace": pid_namespace()}
        assert json.loads(data) == shown
        assert stat.ephemeral_owner == before.session_id
        joined = asyncio.Event()

        async def notice(session: object) -> None:
            joined.set()

        on.node.on_joined(notice)
        assert isinstance(before, MemorySession)
        on.zookeeper.expire(before)
        await joined.wait()
        _, stat = await on.node.session.get(path)
        assert stat.ephemeral_owner == on.node.session.session_id != before.session_id


async def test_rule_about_another_node_is_refused() -> None:
    async with running_agent() as on:
        with pytest.raises(
            ControlError, match="this is the agent of node 1, which the rule is not about; ask the front"
        ):
            await on.ask("POST", "/v1/faults", {"api": "Produce", "brokers": [2], "delay_ms": 1})
        await on.ask("POST", "/v1/faults", {"api": "Produce", "brokers": [1, 7], "delay_ms": 1})


async def test_planned_crash_still_ends_the_process_with_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr("anabranch.control.agent.os._exit", ended.append)
    agent = ControlledNode(BrokerSettings(crash_at="txn:after-add"), "http://127.0.0.1:1")
    assert agent.awaits_steps()
    agent.on_step("txn:after-init")
    assert not ended
    agent.on_step("txn:after-add")
    assert ended == [137]


def test_node_command_loads_no_control_plane_without_the_option() -> None:
    code = (
        "import sys, asyncio\n"
        "from anabranch.cli import node\n"
        "assert node.control_endpoint(None, None, 0, frames=False, certificate=None) is None\n"
        "async def main():\n"
        "    async with node.control_agent(None, None) as agent, node.serving(None, agent, None):\n"
        "        rooms = ('anabranch.control.', 'anabranch.faults.')\n"
        "        print(agent, [one for one in sys.modules if one.startswith(rooms)])\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("None []\n", "")
