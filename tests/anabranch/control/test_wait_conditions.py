"""A wait ends when its whole condition holds; at its timeout it names what is missing."""

from __future__ import annotations

import asyncio

import pytest

from anabranch import Consumer, Producer
from anabranch.control.front.state_merge import MergedState
from anabranch.control.state import GroupRow, OffsetRow
from anabranch.control.wait_conditions import condition, wait
from tests.anabranch.control.conftest import controlled, with_topic


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({}, "name a condition"),
        ({"topics": "t"}, "unknown conditions topics; did you mean topic"),
        ({"leader": "1"}, "leader needs partition"),
        ({"partition": "1"}, "partition needs topic"),
        ({"lag": "1"}, "lag needs group"),
        ({"topic": "t", "partition": "x"}, "partition is a number, not 'x'"),
        ({"topic": "t", "isr": "1;2"}, "isr is a list of ids"),
        ({"node": "a"}, "node is a number"),
        ({"controller": "a"}, "controller is a node's id or any"),
    ],
)
def test_invalid_condition_is_refused(words: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        condition(words)


def test_lag_is_not_met_while_a_partition_has_no_leader() -> None:
    """Its end is unknown: a wait for lag 0 after a kill would end before the records were read."""
    offset: OffsetRow = {"topic": "t", "partition": 1, "end": -1, "committed": 5, "lag": 0}
    group: GroupRow = {
        "group": "g",
        "type": "classic",
        "coordinator": 1,
        "state": "Stable",
        "generation": 1,
        "members": ["m"],
        "withheld": [],
        "offsets": [offset],
        "lag": 0,
    }
    rows = MergedState({"nodes": [], "topics": [], "groups": [group], "transactions": []})
    assert condition({"group": "g", "members": "1"}).missing(rows) == ""
    assert condition({"group": "g", "lag": "0"}).missing(rows) == "the lag of g is unknown: t-1 has no leader"
    offset["end"] = 5
    assert condition({"group": "g", "lag": "0"}).missing(rows) == ""


async def test_unmet_condition_is_explained() -> None:
    async with controlled() as on, asyncio.timeout(60):
        cluster = on.cluster

        async def missing(**words: object) -> str:
            return await wait(cluster, condition({name: str(value) for name, value in words.items()}), 0)

        assert await missing(topic="t") == "there is no topic t"
        waiting = asyncio.create_task(wait(cluster, condition({"topic": "t", "isr": "3+"}), 30))
        await with_topic(on)
        assert await waiting == ""
        assert await missing(topic="t", partitions=2) == ""
        assert await missing(topic="t", partitions=3) == "t has 2 partitions"
        assert await missing(topic="t", partition=5) == "t has no partition 5"
        assert await missing(topic="t", isr="1,2,3") == ""
        assert "the ISR of t-0 is" in await missing(topic="t", isr="1")
        assert await missing(topic="t", partition=1, high_watermark=1) == "the high watermark of t-1 is 0"
        assert await missing(group="g") == "there is no group g"
        servers = cluster.bootstrap_servers
        async with Producer(servers) as producer:
            for _ in range(3):
                await producer.send_and_wait("t", b"v", partition=1)
        assert await missing(topic="t", partition=1, high_watermark=3) == ""
        settings = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with Consumer("t", bootstrap_servers=servers, **settings) as consumer:  # type: ignore[arg-type]
            await consumer.getone()
            assert await wait(cluster, condition({"group": "g", "members": "1"}), 30) == ""
            assert await missing(group="g", state="Stable", members=1) == ""
            assert await missing(group="g", members=2) == "g has 1 members"
            await consumer.commit()
            assert "lag of" in await missing(group="g", lag=0)
            assert await missing(group="g", lag=3) == ""
        assert await missing(group="g", state="Stable") == "g is Empty"
        active = next(one for one, node in cluster.nodes.items() if node.controller and node.controller.active)
        assert await missing(controller="any") == await missing(controller=active) == ""
        other = active % 3 + 1
        assert await missing(controller=other) == f"the controller is {active}"
        await on.actions.kill(other)
        assert await missing(node=other) == f"node {other} is not running"
        assert await wait(cluster, condition({"topic": "t", "isr": f"{other}"}), 0.01) != ""
        await on.actions.start(other)
        assert await wait(cluster, condition({"node": str(other)}), 30) == ""
        leader = next(
            image.leader for image in cluster.nodes[active].services.metadata.image.topics["t"].partitions.values()
        )
        assert await missing(topic="t", partition=0, leader=leader) == ""
        assert await missing(topic="t", partition=0, leader=9) == f"t-0 is led by {leader}"
