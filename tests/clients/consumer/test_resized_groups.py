"""Order and delivery hold through resizes, rebalances, crashes and lost brokers.

Method: a real cluster in this process, a group under observation (`groups`). Every judge is shown to bite at the end.
"""

from __future__ import annotations

from typing import Any

import pytest

from anabranch import Admin, Producer, TopicPartition
from anabranch.clients.consumer.delivery import Deliveries
from anabranch.clients.consumer.gate import TopicGate
from anabranch.clients.consumer.ownership import Ownership
from anabranch.clients.consumer.poll_loop import PollLoop
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.lineage import Lineage
from tests.clients.consumer.groups import (
    TOPIC,
    Callback,
    History,
    Reader,
    cluster_and_admin,
    make_topic,
    readers,
    repeated,
    resize,
    send,
)


async def lineage_of(admin: Admin) -> Lineage:
    lineage = (await admin.describe_topic(TOPIC)).lineage
    assert lineage is not None
    return lineage


@pytest.mark.parametrize("commits", [False, True], ids=["auto-commit", "own commits"])
async def test_group_with_backlog_keeps_order_through_4_6_8_5(commits: bool) -> None:
    """Two resizes before the first is consumed; the last one merges gated partitions."""
    async with cluster_and_admin() as (cluster, admin):
        await make_topic(admin, 4)
        history = History(cluster)
        settings: dict[str, Any] = {"commits": True, "enable_auto_commit": False} if commits else {}
        async with (
            Producer(cluster.bootstrap_servers, audit=True, linger_ms=1) as producer,
            readers(history, 3, pause_s=0.01, batch=40, **settings),
        ):
            await send(producer, admin, 400)
            for count in (6, 8, 5):
                await resize(admin, count)
                await send(producer, admin, 400)
            await history.until(lambda: len(history.distinct) == 1600)
            history.judge(await lineage_of(admin), 1600)
            assert {event.name for event in history.events if isinstance(event, Callback)} >= {
                "maybe_revoked",
                "key_assigned",
            }
        assert commits or repeated(history) == 0, "everybody went in order, so nothing is read again"


async def test_owner_that_crashes_during_hand_over_causes_redelivery_in_order() -> None:
    """K602: its uncommitted records are delivered again, before later ones."""
    async with cluster_and_admin() as (cluster, admin):
        await make_topic(admin, 1)
        history = History(cluster)
        async with Producer(cluster.bootstrap_servers, audit=True, linger_ms=1) as producer:
            await send(producer, admin, 200, keys=4)
            await resize(admin, 2)
            await send(producer, admin, 200, keys=4)
            # The owner reads to just before the cut and never commits; its commit would open the child.
            async with readers(history, 2, batch=50, auto_commit_interval_ms=60_000, pause_s=0.05) as members:
                await history.until(lambda: any(0 in one.owned for one in members))
                owner = next(one for one in members if 0 in one.owned)
                other = next(one for one in members if one is not owner)
                await history.until(lambda: history.positions.get(0, 0) >= 100)
                owner.go_on.clear()
                await owner.crash()
                seen = len(history.deliveries)
                assert other.gated <= {1}
                await history.until(lambda: len(history.distinct) == 400)
                history.judge(await lineage_of(admin), 400)
                again = [one.offset for one in history.deliveries[seen:] if one.partition == 0]
                assert again[0] == 0, "nothing was committed, so everything came again"


async def test_group_survives_failure_of_coordinator_and_leader() -> None:
    async with cluster_and_admin() as (cluster, admin):
        await make_topic(admin, 4, replicas=3)
        history = History(cluster)
        async with (
            Producer(cluster.bootstrap_servers, audit=True, linger_ms=1) as producer,
            readers(history, 3, pause_s=0.01, batch=40) as members,
        ):
            await send(producer, admin, 400)
            await history.until(lambda: len(history.distinct) > 100)
            session = members[0].consumer._session
            assert session is not None
            coordinator = await members[0].consumer._network.coordinator(history.group)
            await resize(admin, 6)
            await cluster.stop_broker(coordinator)
            await send(producer, admin, 400)
            await resize(admin, 3)
            assert await members[0].consumer._network.coordinator(history.group) != coordinator
            await cluster.start_broker(coordinator)
            await send(producer, admin, 400)
            await history.until(lambda: len(history.distinct) == 1200)
            history.judge(await lineage_of(admin), 1200)


async def test_late_members_and_recreated_gated_partitions_keep_order() -> None:
    """2 -> 4 -> 2 -> 4 before any read; then members join one by one."""
    async with cluster_and_admin() as (cluster, admin):
        await make_topic(admin, 2)
        history = History(cluster)
        async with Producer(cluster.bootstrap_servers, audit=True, linger_ms=1) as producer:
            await send(producer, admin, 200)
            for count in (4, 2, 4):
                await resize(admin, count)
                await send(producer, admin, 200)
            async with readers(history, 1, pause_s=0.01, batch=20) as members:
                for number in (1, 2):
                    await history.until(lambda least=200 * number: len(history.distinct) > least)
                    members.append(await Reader(f"late-{number}", history, batch=20, pause_s=0.01).start())
                await history.until(lambda: len(history.distinct) == 800)
                history.judge(await lineage_of(admin), 800)


@pytest.mark.parametrize("counts", [(1, 2, 4), (4, 2, 1), (1, 2, 1), (2, 1, 2)], ids=str)
async def test_empty_partitions_at_every_node_of_lineage(counts: tuple[int, ...]) -> None:
    """Only the first and last key epochs have records."""
    async with cluster_and_admin() as (cluster, admin):
        await make_topic(admin, counts[0])
        history = History(cluster)
        async with Producer(cluster.bootstrap_servers, audit=True) as producer:
            await send(producer, admin, 40, keys=8)
            for count in counts[1:]:
                await resize(admin, count)
            await send(producer, admin, 40, keys=8)
            async with readers(history, 2, batch=5, pause_s=0.005):
                await history.until(lambda: len(history.distinct) == 80)
                history.judge(await lineage_of(admin), 80)


async def test_r10_boundary_is_committed_when_reached() -> None:
    """The next commit is a minute away: only the one at the boundary opens the child, also for an empty parent."""
    async with cluster_and_admin() as (cluster, admin):
        await make_topic(admin, 2)
        history = History(cluster)
        async with Producer(cluster.bootstrap_servers, audit=True) as producer:
            await send(producer, admin, 1, keys=1)
            await resize(admin, 4)
            await send(producer, admin, 40)
            async with readers(history, 3, auto_commit_interval_ms=60_000):
                await history.until(lambda: len(history.distinct) == 41)
                history.judge(await lineage_of(admin), 41)


@pytest.mark.parametrize("rule", [True, False], ids=["with the rule", "without"])
async def test_r12_fetch_response_reports_resize(rule: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No metadata refresh, and an idle parent: only the fencing of fetches reports it (KIP-320)."""
    if not rule:
        from anabranch.clients.consumer import fetcher

        real = fetcher.FetchPartition
        monkeypatch.setattr(fetcher, "FetchPartition", lambda **given: real(**{**given, "current_leader_epoch": -1}))
    async with cluster_and_admin() as (cluster, admin):
        await make_topic(admin, 1)
        history = History(cluster)
        async with (
            Producer(cluster.bootstrap_servers, audit=True) as producer,
            readers(history, 1, metadata_max_age_ms=300_000) as (reader,),
        ):
            await send(producer, admin, 2, keys=1)
            await history.until(lambda: len(history.distinct) == 2)
            await resize(admin, 2)
            if rule:
                await history.until(lambda: reader.owned == {0, 1})
            else:
                with pytest.raises(TimeoutError):
                    await history.until(lambda: reader.owned == {0, 1}, timeout_s=1)


async def test_rewind_below_cut_stops_at_cut_again() -> None:
    """K608: after a seek before a boundary, it flushes and commits there again."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        history = History(cluster)
        async with Producer(cluster.bootstrap_servers, audit=True) as producer:
            await send(producer, admin, 20)
            await resize(admin, 2)
            await send(producer, admin, 20)
            async with readers(history, 1) as (reader,):
                await history.until(lambda: len(history.distinct) == 40)
                await reader.pause()
                before = sum(isinstance(one, Callback) and one.name == "maybe_revoked" for one in history.events)
                reader.consumer.seek(TopicPartition(TOPIC, 0), 10)
                reader.go_on.set()
                await history.until(lambda: len(history.deliveries) >= 40 + 10)
                await history.until(
                    lambda: (
                        sum(isinstance(one, Callback) and one.name == "maybe_revoked" for one in history.events)
                        == before + 1
                    )
                )


async def no_flush(self: PollLoop, step: object) -> None:
    """Planted: commit at a boundary without telling the application."""


def give_up_without_flush(self: Ownership, rows: object) -> None:
    """Planted: a rebalance that only commits."""


def everything_passes(self: Deliveries, progress: object, key_epoch: object, now_s: float) -> bool:
    """Planted: no gate."""
    return True


@pytest.mark.parametrize(
    ("planted", "caught"),
    [
        ([(PollLoop, "_flush", no_flush)], "I5"),
        ([(TopicGate, "boundaries", lambda self, partition: [])], "I5"),
        ([(Deliveries, "_passes", everything_passes)], "I4"),
        ([(Ownership, "_flush", give_up_without_flush)], "I5"),
    ],
    ids=["no flush before the commit", "no stop at the boundary", "no gate", "no flush before a rebalance"],
)
async def test_planted_defects_are_detected(
    planted: list[tuple[type, str, Any]], caught: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three fast readers with a backlog that ends in a cut; without the bug the same story passes."""

    async def story(cluster: Cluster, admin: Admin) -> None:
        await make_topic(admin, 2)
        history = History(cluster)
        lineage = None
        async with Producer(cluster.bootstrap_servers, audit=True, linger_ms=1) as producer:
            # One half is read before the cut (what is read then is passed on by a rebalance), the other at the cut.
            await send(producer, admin, 200)
            async with readers(history, 3, batch=20, pause_s=0.02, auto_commit_interval_ms=10):
                if caught == "I5" and planted and planted[0][0] is Ownership:
                    await history.until(lambda: len(history.distinct) == 200)
                await resize(admin, 4)
                lineage = await lineage_of(admin)
                await send(producer, admin, 200)
                await history.until(lambda: len(history.distinct) == 400)
        found = history.wrong + history.callbacks_out_of_order(lineage)
        if planted:
            assert any(one.startswith(caught) for one in found), f"{caught} is not caught: {found[:3]}"
        else:
            assert found == []

    with monkeypatch.context() as patch:
        for owner, name, mistake in planted:
            patch.setattr(owner, name, mistake)
        async with cluster_and_admin() as (cluster, admin):
            await story(cluster, admin)
    planted = []
    async with cluster_and_admin() as (cluster, admin):
        await story(cluster, admin)
