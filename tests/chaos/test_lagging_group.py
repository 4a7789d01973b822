"""What a run says about a group that has not received everything."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from fnmatch import fnmatch
from pathlib import Path

from anabranch import Admin
from anabranch.chaos.clients import TOPIC
from anabranch.chaos.history import Send
from anabranch.chaos.lagging_group import describe_lag
from anabranch.chaos.members import MemberGroup
from anabranch.cluster.in_process import Cluster
from anabranch.journal.entry import ExchangeRow
from anabranch.journal.exchange_line import exchange_line
from tests.broker.coordinators import stock_members
from tests.broker.coordinators.gated_orders import EACH, orders
from tests.broker.coordinators.stock_members import StockMember


def sent(partition: int, offset: int) -> Send:
    value = f"k/{partition}-{offset}"
    return Send(0, "w", "k", 0, value, outcome="ok", place=(TOPIC, partition), offset=offset)


SENDS = [sent(0, EACH - 1), sent(1, 4)]


OPEN: ExchangeRow = {
    "number": 41,
    "at": 3.0,
    "ms": None,
    "node": 2,
    "peer": "127.0.0.1:40000",
    "principal": "User:ANONYMOUS",
    "client_id": "readers-1",
    "api": "Heartbeat",
    "version": 4,
    "correlation_id": 7,
    "outcome": "open",
    "errors": [],
    "rules": [],
    "overruled": [],
    "request": None,
    "response": None,
}


async def exchanges(client_id: str) -> list[ExchangeRow]:
    return [OPEN] if fnmatch(OPEN["client_id"] or "", client_id) else []


async def described(admin: Admin, group: MemberGroup) -> list[str]:
    return [line async for line in describe_lag(admin, group, SENDS, exchanges)]


async def test_report_names_owner_gate_process_and_exchanges(tmp_path: Path) -> None:
    group = MemberGroup(stock_members.GROUP, f"{sys.executable} -c 'import signal; signal.pause()'", "", tmp_path)
    group.file.write_text(json.dumps({"key": "k", "sequence": 0, "partition": 0, "offset": 3}) + "\n")
    group.look()
    tasks = group.tasks()
    try:
        async with orders() as (_, admin, _):
            member = StockMember(admin)
            await member.take_part()
            await admin.create_partitions(stock_members.TOPIC, 2)
            assert await member.take_part() == {0}
            while len(group.processes._running) < len(tasks):  # noqa: ASYNC110 -- a task of the group starts them
                await asyncio.sleep(0.01)
            lines = await described(admin, group)
    finally:
        await group.stop(tasks)
    pids = [process.pid for process in group.processes._running.values()]
    assert [re.sub(r"state [RD]$", "state S", line) for line in lines] == [
        "Stable classic group on node 1",
        f"{TOPIC}-0 is assigned to {member.member_id}: delivered to 4 of {EACH}, committed nothing",
        f"{TOPIC}-1 waits for 0@0 to reach offset {EACH} (committed: nothing): delivered to 0 of 5, committed 0",
        f"member {member.member_id} (anabranch-admin) has ['{TOPIC}-0']",
        f"process readers-0 (pid {pids[0]}): state S",
        f"process readers-1 (pid {pids[1]}): state S",
        f"printed last: {group.processes.log} is empty",
        exchange_line(OPEN),
    ]


async def test_report_on_a_group_without_members_says_so(tmp_path: Path) -> None:
    group = MemberGroup("none", "true", "", tmp_path)
    group.processes.log.write_text("broken\n")
    group.file.write_text(json.dumps({"key": "k", "sequence": 0, "partition": 1, "offset": 4}) + "\n")
    group.look()  # partition 1 is delivered to its end
    async with Cluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        lines = await described(admin, group)
    assert lines == [
        "the group cannot be read: KafkaError(<ErrorCode.GROUP_ID_NOT_FOUND: 69>, 'none')",
        f"{TOPIC}-0 is assigned to no member: delivered to 0 of {EACH}, committed nothing",
        "printed last: broken",
    ]
