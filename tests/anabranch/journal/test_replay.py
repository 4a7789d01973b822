"""Recorded requests are sent to another cluster in order, and only differences are reported.

Method: a cluster is recorded while a client works with it; another one, as new or not, is asked the same.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from anabranch import Admin, NewTopic
from anabranch.cluster.in_process import Cluster
from anabranch.journal.capture import capture
from anabranch.journal.journal import Journal
from anabranch.journal.recording import RecordedExchange, read_recording
from anabranch.journal.replay import Replay, ReplayedExchange, row
from tests.anabranch.proxy.stories import PARTITIONS, VALUES, aiokafka, confluent, make_topics

BROKERS = 2


@contextlib.asynccontextmanager
async def recorded_cluster() -> AsyncIterator[tuple[Cluster, Journal]]:
    async with asyncio.timeout(60), Cluster(BROKERS, seed=1) as cluster:
        journal = Journal(5000, cluster.node_ids, frames=True)
        cluster.on_node(journal.watch)
        yield cluster, journal


async def said(topic: str = "t") -> list[RecordedExchange]:
    """The requests of a transactional producer and a group member."""
    async with recorded_cluster() as (cluster, journal):
        await make_topics(cluster.bootstrap_servers, topic)
        await aiokafka(cluster.bootstrap_servers, topic)
        return read_recording(capture(journal.entries(client_id="*"), 0.0))


async def replayed(recorded: list[RecordedExchange], servers: str, pace: float | None = None) -> list[ReplayedExchange]:
    return [one async for one in Replay(recorded, servers).play(pace)]


def differences_of(found: list[ReplayedExchange]) -> list[str]:
    return [f"{one.api} {one.left_out} {one.differences}" for one in found if one.left_out or one.differences]


async def test_another_cluster_of_ours_answers_equally_with_other_ids() -> None:
    recorded = await said()
    kinds = {"CreateTopics", "Produce", "EndTxn", "JoinGroup", "SyncGroup", "OffsetCommit", "Fetch"}
    async with Cluster(BROKERS, seed=99) as other, asyncio.timeout(60):
        found = await replayed(recorded, other.bootstrap_servers)
        assert {one.api for one in found} >= kinds
        different = {line.partition(" ")[0] for line in differences_of(found)}
        assert not different & (kinds - {"Fetch"}), differences_of(found)
        assert sum(bool(one.differences) for one in found) <= len(found) // 10, differences_of(found)
        logs = [node.services.replicas.replica("t", 0) for node in other.nodes.values()]
        assert max(one.log.log_end_offset for one in logs if one is not None) >= len(VALUES) // PARTITIONS


async def test_differences_are_reported_by_field() -> None:
    recorded = [one for one in await said() if b"CreateTopics" not in one.request]
    async with Cluster(BROKERS, seed=5, properties={"auto.create.topics.enable": "false"}) as other:
        without = [one for one in recorded if one.request[:2] != (19).to_bytes(2, "big")]  # CreateTopics
        found = await replayed(without, other.bootstrap_servers)
        paths = {(one.api, each.path) for one in found for each in one.differences}
        assert any(api == "Metadata" and path.endswith("error_code") for api, path in paths), paths
        rows = [row(one) for one in found if one.differences]
        assert {"path", "then", "now"} == set(rows[0]["differences"][0])


async def test_pace_is_kept() -> None:
    recorded = (await said())[:6]
    spread = [
        RecordedExchange(
            one.number, place * 0.1, place * 0.1 + 0.001, one.node_id, one.connection, one.request, one.answer
        )
        for place, one in enumerate(recorded)
    ]
    async with Cluster(BROKERS, seed=5) as other:
        for pace, at_least_s in ((1.0, 0.5), (10.0, 0.05)):
            began_s = asyncio.get_running_loop().time()
            await replayed(spread, other.bootstrap_servers, pace)
            took_s = asyncio.get_running_loop().time() - began_s
            assert took_s >= at_least_s


async def test_unreadable_requests_and_logins_are_skipped_and_lost_responses_not_awaited() -> None:
    unknown = b"\x0b\xb8\0\0\0\0\0\1\xff\xff"
    login = b"\0\x11\0\1\0\0\0\1\xff\xff\0\5PLAIN"
    listing = b"\0\x10\0\0\0\0\0\1\xff\xff"
    recorded = [
        RecordedExchange(number, float(number), None, 1, "c", request, b"")
        for number, request in enumerate((unknown, login, listing))
    ]
    torn = RecordedExchange(3, 3.0, 3.1, 1, "c", listing, b"\0\0\0\1\0\0\0\0\0\7")
    async with Cluster(1) as other, asyncio.timeout(30):
        found = await replayed([*recorded, torn], other.bootstrap_servers)
    assert "cannot be decoded" in found[0].left_out and "logins" in found[1].left_out
    assert "its recorded response cannot be decoded" in found[2].left_out
    assert len(found) == 3, "no response was recorded to the listing, and none is awaited"


async def test_unreachable_cluster_is_a_connection_error() -> None:
    with pytest.raises(ConnectionError):
        await replayed([RecordedExchange(1, 0.0, None, 1, "c", b"", b"")], "127.0.0.1:1")


async def test_any_of_several_servers_may_answer() -> None:
    listing = RecordedExchange(1, 0.0, 0.1, 1, "c", b"\0\x10\0\0\0\0\0\1\xff\xff", b"\0\0\0\1" + bytes(6))
    async with Cluster(1) as other, asyncio.timeout(30):
        (found,) = await replayed([listing], f"127.0.0.1:1,{other.bootstrap_servers}")
    assert found.api == "ListGroups" and differences_of([found]) == []


async def test_librdkafka_exchanges_are_replayed_from_json_lines() -> None:
    import json

    async with recorded_cluster() as (cluster, journal):
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name="r", partitions=PARTITIONS, replication_factor=1)])
            await admin.wait_for_topic("r")
        await asyncio.to_thread(confluent, cluster.bootstrap_servers, "r")
        lines = "\n".join(json.dumps(one.row(with_bytes=True)) for one in journal.entries())
    recorded = read_recording(lines.encode())
    async with Cluster(BROKERS, seed=7) as other, asyncio.timeout(60):
        found = await replayed(recorded, other.bootstrap_servers)
    commits = [one for one in found if one.api in ("OffsetCommit", "EndTxn", "Produce")]
    assert commits and not differences_of(commits)
