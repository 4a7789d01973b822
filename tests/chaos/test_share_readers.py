"""A share group in a chaos run is checked by its members' logs, and planted bugs are noticed."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.chaos.__main__ import main
from anabranch.chaos.faults import Fired
from anabranch.chaos.history import Send
from anabranch.chaos.plan import Plan
from anabranch.chaos.run import chaos
from anabranch.chaos.share_events import Handed, Judged
from anabranch.chaos.share_member import ShareMember, begin_at_earliest
from anabranch.chaos.share_readers import DELIVERY_LIMIT, GROUP, PROPERTIES, SHARED, Handling, SharedTopic
from anabranch.chaos.verdict import report
from anabranch.clients.security import SecurityArguments
from anabranch.cluster.in_process import Cluster
from tests.broker.coordinators.share_partitions.sharing import until

log = logging.getLogger(__name__)

PATIENCE_S = 300.0
BY_HAND = pytest.mark.skipif(
    not os.environ.get("ANABRANCH_INTEROP"),
    reason="RUNS OF SHARE GROUPS ON REAL PROCESSES ARE SKIPPED: set ANABRANCH_INTEROP",
)


async def test_writer_that_cannot_stop_is_a_failure_of_the_run_and_does_not_end_it() -> None:
    async def stop() -> None:
        raise TimeoutError

    shared = SharedTopic("127.0.0.1:1", lambda _: random.Random(1), members=1, rate=1, access=SecurityArguments())
    writing = asyncio.create_task(stop(), name="shared")
    shared._tasks = [writing]
    assert not shared.all_processed()
    await asyncio.wait([writing])
    assert shared.all_processed() and await shared.failures() == ["shared failed: TimeoutError()"]


async def test_every_record_is_acknowledged_while_members_join_and_leave() -> None:
    rng = random.Random(1)
    async with (
        Cluster(3, kafka="4.2", properties=PROPERTIES) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
        asyncio.timeout(120),
    ):
        shared = SharedTopic(cluster.bootstrap_servers, lambda _: rng, members=2, rate=200, access=SecurityArguments())
        running = await shared.begin(admin)
        try:
            while shared.crashed < 2:
                before = len(shared.history.shares.handed)
                await until(lambda before=before: len(shared.history.shares.handed) >= before + 10)  # type: ignore[misc]
                shared.crash(rng)
            shared.end_of_faults()
            await until(shared.all_processed)
            assert not any(task.done() for task in running[1:])
        finally:
            await shared.stop()
    assert not list(shared.judge([]))
    assert all(task.done() for task in running)
    assert len(shared.history.sends) > 20
    assert shared.summary().endswith("2 members crashed")
    send = shared.history.sends[0]
    assert send.place is not None and send.place[0] == SHARED
    shared.history.shares.handed.append(Handed(1, 1, 0.0, "s0.1", 1, send.place, send.offset, DELIVERY_LIMIT + 1))
    shared.history.shares.judged.clear()
    assert {line[:3] for line in shared.judge([])} == {"A41", "A43"}


async def test_member_that_accepts_everything_reads_without_pauses() -> None:
    """After an hour of faults it has more to read than its usual pauses allow in a minute and a half."""
    async with Cluster(1, kafka="4.2", properties=PROPERTIES) as cluster, Admin(cluster.bootstrap_servers) as admin:
        rng = random.Random(1)
        shared = SharedTopic(cluster.bootstrap_servers, lambda _: rng, members=1, rate=200, access=SecurityArguments())
        shared.end_of_faults()
        [sharer] = shared._sharers
        await admin.create_topics([NewTopic(name=SHARED)])
        await begin_at_earliest(cluster.bootstrap_servers, GROUP)
        member = ShareMember([cluster.bootstrap_servers], GROUP, sharer.identity, SHARED, rng=rng, heartbeat_s=0.1)
        now_s = asyncio.get_running_loop().time
        handling = Handling("s", member, shared.history, rng, now_s=now_s, lock_s=1e6)
        handed = shared.history.shares.handed
        async with Producer(cluster.bootstrap_servers) as producer, asyncio.timeout(60):
            for count in range(1, 13):
                await producer.send_and_wait(SHARED, b"x", partition=0)
                while len(handed) < count:
                    await member.beat()
                    await handling.turn(sharer.content)
        await member.close()


async def test_run_goes_on_while_an_acknowledgement_may_be_refused() -> None:
    shared = SharedTopic("", lambda _: random.Random(1), members=1, rate=1, access=SecurityArguments())
    shared._tasks = [asyncio.create_task(asyncio.sleep(0))]
    await shared._tasks[0]
    place = (SHARED, 0)
    shared.history.sends.append(Send(1, "p", "k", 1, "v", "ok", place, 0))
    assert not shared.all_processed()
    row = Judged(2, "s0.0", 1, place, 0, "accept")
    shared.history.shares.judged.append(row)
    assert not shared.all_processed()
    row.acked_order, row.outcome = 3, "fail"
    assert not shared.all_processed()
    shared.history.shares.judged.append(Judged(4, "s0.0", 1, place, 0, "accept", "ok", 5))
    assert shared.all_processed()
    shared.history.shares.judged.append(Judged(6, "s0.9", 1, place, 0, "release"))
    assert shared.all_processed(), "a member that has crashed learns nothing"


def test_brokers_without_share_groups_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--duration", "1", "--sharers", "2", "--kafka", "3.9"]) == 2
    assert "--sharers needs --kafka 4.2" in capsys.readouterr().err


def deadly(fired: Sequence[Fired]) -> bool:
    return sum(one.name == "kill" for one in fired) >= 6


@BY_HAND
@pytest.mark.processes
@pytest.mark.zookeeper
@pytest.mark.parametrize("module", ["anabranch.cli.main", "tests.chaos.shares_too_early"], ids=["product", "too early"])
async def test_run_of_processes_detects_a_planted_bug_only(module: str, tmp_path: Path) -> None:
    plan = Plan(
        duration_s=25,
        enough=deadly,
        seed=3,
        pace_s=1.5,
        sharers=3,
        faults=("kill", "crash a sharer"),
        patience_s=PATIENCE_S if module == "anabranch.cli.main" else 20,
    )
    verdict = await chaos(plan, say=log.info, directory=tmp_path, module=module)
    found = {line[:3] for line in verdict.anomalies}
    assert ("A42" in found) == (module != "anabranch.cli.main"), "\n".join(report(verdict))
    assert module != "anabranch.cli.main" or not found, "\n".join(report(verdict))
