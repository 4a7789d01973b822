"""One response has nodes, replicas, groups and transactions of the same moment."""

from __future__ import annotations

import asyncio
import json

from anabranch import Consumer, Producer
from anabranch.control import state
from tests.anabranch.control.conftest import controlled, with_topic


async def test_state_has_nodes_topics_groups_and_transactions() -> None:
    async with controlled() as on, asyncio.timeout(60):
        await with_topic(on)
        servers = on.cluster.bootstrap_servers
        async with Producer(servers, transactional_id="tx") as producer:
            async with producer.transaction():
                await producer.send("t", b"v", partition=1)
            settings = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
            async with Consumer("t", bootstrap_servers=servers, **settings) as consumer:  # type: ignore[arg-type]
                await consumer.getone()
                await consumer.commit()
                row = state.cluster_state(on.cluster)
        json.dumps(row)
        assert [one["node"] for one in row["nodes"]] == [1, 2, 3]
        assert sum(one["controller"] for one in row["nodes"]) == 1
        topic = next(one for one in row["topics"] if one["topic"] == "t")
        first, second = topic["partitions"]
        assert (first["high_watermark"], second["high_watermark"]) == (0, 2), "a record and the marker"
        assert {one["end"] for one in second["replicas"]} == {2}
        assert sorted(second["isr"]) == [1, 2, 3]
        (group,) = row["groups"]
        assert (group["group"], group["state"], len(group["members"])) == ("g", "Stable", 1)
        read, other = group["offsets"][1], group["offsets"][0]
        assert read == {"topic": "t", "partition": 1, "committed": 1, "end": 2, "lag": 1}
        assert (other["partition"], other["committed"] in (0, None), other["lag"]) == (0, True, 0)
        assert group["lag"] == 1
        (transaction,) = row["transactions"]
        assert (transaction["transactional_id"], transaction["state"]) == ("tx", "CompleteCommit")


async def test_stopped_node_has_a_row_and_its_replicas_no_end_offset() -> None:
    async with controlled() as on, asyncio.timeout(60):
        await with_topic(on, partitions=1)
        down = next(one for one in (1, 2, 3) if one != state.topics(on.cluster)[0]["partitions"][0]["leader"])
        await on.actions.kill(down)
        row = state.node_row(on.cluster, down)
        assert (row["running"], row["port"]) == (False, on.cluster.address(down)[1])
        (partition,) = state.topics(on.cluster)[0]["partitions"]
        ends = {one["node"]: one["end"] for one in partition["replicas"]}
        assert ends[down] == -1 and sorted(ends.values()) == [-1, 0, 0]
