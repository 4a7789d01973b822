"""A node whose task ends with a bug logs it and stops.

Method: real nodes in this process, and functions of the product that are replaced by a bug. For the process, a command.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import subprocess
import sys
from typing import Any

import pytest

from anabranch import Admin, NewTopic
from anabranch.broker.node.app import Node
from anabranch.broker.replication.isr_changes import IsrChanges
from anabranch.broker.replication.replica_fetcher import Fetcher
from anabranch.broker.replication.transaction_verification import CoordinatorQueue, Transaction
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.log_manager import LogManager
from anabranch.broker.tasks.supervised_task import FatalNodeError, supervised_task
from anabranch.broker.tasks.znode_watch import ZnodeWatch
from anabranch.cluster.in_process import Cluster
from anabranch.controller.zk.session import SessionEvent


async def test_only_an_unexpected_exception_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    bugs: list[FatalNodeError] = []

    async def fails() -> None:
        raise ValueError("oops")

    async def ends() -> None:
        return

    tasks = [supervised_task(work, f"task {number}", bugs.append) for number, work in enumerate((fails(), ends()))]
    tasks.append(supervised_task(asyncio.Event().wait(), "task 2", bugs.append))
    await asyncio.wait(tasks[:2])
    tasks[2].cancel()
    await asyncio.wait(tasks)
    [bug] = bugs
    assert str(bug) == "task 0 has a bug: ValueError('oops')"
    assert bug.__cause__ is tasks[0].exception()
    [record] = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "bug in task 0")
    assert record.exc_info


async def first_bug(cluster: Cluster) -> BaseException | None:
    failed = [node.failed for node in cluster.nodes.values()]
    async with asyncio.timeout(60):
        done, _ = await asyncio.wait(failed, return_when=asyncio.FIRST_COMPLETED)
    errors = [one.exception() for one in done]
    return errors[0]


@pytest.mark.parametrize(
    ("owner", "method", "name"),
    [
        (Fetcher, "_fetch_once", "fetcher-"),
        (PartitionLog, "apply_retention", "retain-"),
        (LogManager, "flush_step", "flushing-"),
        (LogManager, "clean_step", "cleaning-"),
        (IsrChanges, "_deliver_all", "isr-changes-"),
        (CoordinatorQueue, "_ask", "verification-"),
        (ZnodeWatch, "_run", ("features", "config-changes", "acl", "token")),
        (Node, "_join", "renewal-"),
    ],
)
async def test_node_with_an_unexpected_exception_stops(
    owner: type, method: str, name: str | tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(*_: Any, **__: Any) -> Any:
        raise ValueError("oops")

    async def bug_of_a_coroutine(*_: Any, **__: Any) -> Any:
        bug()

    planted = bug_of_a_coroutine if inspect.iscoroutinefunction(getattr(owner, method)) else bug
    properties = {"log.retention.check.interval.ms": "20", "log.cleaner.backoff.ms": "20"}
    if owner is not Node:  # which could not even start
        monkeypatch.setattr(owner, method, planted)
    async with Cluster(2, seed=1, properties=properties) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=1, replication_factor=2)])
        monkeypatch.setattr(owner, method, planted)
        if owner is Node:
            cluster.nodes[1]._renewal.on_session(cluster.nodes[1].session, SessionEvent.EXPIRED)
        if owner is CoordinatorQueue:
            services = cluster.nodes[1].services
            lane = CoordinatorQueue(2, services.metadata, services.settings, services.replicas.verifier._died)
            lane.ask(Transaction("x", 1, 0, abortable=True), [("t", 0)])
        found = await first_bug(cluster)
        assert isinstance(found, FatalNodeError)
        assert str(found).startswith(name)
        assert str(found).endswith("has a bug: ValueError('oops')")
        assert isinstance(found.__cause__, ValueError)
        monkeypatch.undo()
        for node in cluster.nodes.values():
            if not node.failed.cancel():
                node.failed.exception()


def test_process_exits_with_the_traceback() -> None:
    code = """
from anabranch.cli.main import main
from anabranch.broker.storage.log_manager import LogManager

def oops(self):
    raise ValueError("oops")

LogManager.flush_step = oops
main(["up", "--brokers", "1", "--port", "0"])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert ended.stdout.startswith("ready")
    assert "ValueError: oops" in ended.stderr
    assert "FatalNodeError: flushing-1 has a bug" in ended.stderr.splitlines()[-1]
