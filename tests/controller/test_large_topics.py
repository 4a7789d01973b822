"""Topics larger than one ZooKeeper request: split where possible, else refused first, and never blocking others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.broker.config.config_changes import change_config
from anabranch.controller import candidacy, partitions, reassignment, resize, topic_admin, topic_size
from anabranch.controller.candidacy import ControllerTenure, commit_fenced
from anabranch.controller.effects import WritePartitions
from anabranch.controller.model import LeaderAndIsr, Retired, TopicBody
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.memory import MemorySession, MemoryZooKeeper
from anabranch.controller.zk.session import ConnectionLoss, Create, Delete, Op, Set, TooLarge
from anabranch.controller.zk.sizes import REQUEST_BYTES_MAX, ZNODE_BYTES_MAX, bytes_of, multi_bytes
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.controller.cluster import TestCluster
from tests.controller.test_resize_requests import ask, topic_request
from tests.controller.test_znode_writer import desk, write
from tests.controller.world import started

pytestmark = pytest.mark.timeout(120)


LONG_NAME = "n" * 240
MANY = 2500
"""Partitions of a topic of that name: their znodes' paths alone are more than a request."""


async def test_topic_grows_and_is_deleted_in_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    removals: list[int] = []
    multi = MemorySession.multi

    async def counted(self: MemorySession, ops: list[Op]) -> Any:
        removals.extend([len(ops)] if isinstance(ops[-1], Delete) else [])
        return await multi(self, ops)

    monkeypatch.setattr(MemorySession, "multi", counted)
    cluster = await TestCluster.start(brokers=1)
    await cluster.create_topic(LONG_NAME, partitions=4, replication=1)
    assert (await cluster.resize(LONG_NAME, MANY)).error_code == 0
    body = await cluster.topic(LONG_NAME)
    assert (body.plan, body.undeleted_partition_count) == (None, MANY)
    assert MANY * 2 * len(paths.partition(LONG_NAME, 0)) > REQUEST_BYTES_MAX
    await topic_admin.delete_topic(cluster.client, LONG_NAME)
    await cluster.until(lambda: cluster.seen("topic deleted"))
    for path in (paths.topic(LONG_NAME), paths.delete_topic(LONG_NAME), paths.topic_config(LONG_NAME)):
        assert await cluster.client.exists(path) is None
    assert len(removals) < 30, "none was refused first and then carried out one by one"
    await cluster.stop()


async def test_other_topic_is_created_while_large_topic_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Administration continues during a long resize: another topic is created before the last piece."""
    monkeypatch.setattr(partitions, "PARTITIONS_AT_ONCE", 5)
    cluster = await TestCluster.start(brokers=1)
    await cluster.create_topic("large", partitions=4, replication=1)
    resizing = asyncio.ensure_future(cluster.resize("large", 400, timeout_ms=60_000))
    await cluster.until_states("large", lambda states: len(states) > 4)
    await cluster.create_topic("small", partitions=1, replication=1)
    assert len(await cluster.states("large")) < 400
    assert (await resizing).error_code == 0
    assert (await cluster.resize("large", 5)).error_code == 0
    await cluster.stop()


@pytest.mark.parametrize("died_after", [1, 2, 3, 4])
async def test_deletion_is_finished_by_next_controller_from_any_step(died_after: int) -> None:
    """The controller's session ends after the nth piece (a partition each); the next one continues."""
    cluster = await TestCluster.start(brokers=2)
    steps: list[str] = []

    def die(step: str) -> None:
        steps.append(step)
        if step == "delete-partitions" and steps.count(step) == died_after:
            cluster.zookeeper.expire(first.session_under_test)  # type: ignore[attr-defined]

    await cluster.controllers.pop().stop()
    first = await cluster.add_controller(101, failpoint=die)
    await cluster.until(lambda: first.active)
    await cluster.create_topic("t", partitions=4)
    await topic_admin.delete_topic(cluster.client, "t")
    await cluster.until(lambda: steps.count("delete-partitions") == died_after)
    await cluster.until(lambda: not first.active)
    assert await cluster.client.exists(paths.delete_topic("t")) is not None
    assert len(await cluster.states("t")) == 4 - died_after
    await cluster.add_controller(102)
    await cluster.until(lambda: cluster.seen("topic deleted"))
    assert await cluster.client.exists(paths.topic("t")) is None
    assert await cluster.client.exists(paths.delete_topic("t")) is None
    await cluster.create_topic("t", partitions=2)
    await cluster.stop()


@pytest.mark.parametrize("count", [100_000, 2**31 - 1])
def test_too_large_topic_znode_is_refused_before_write(count: int) -> None:
    world, term = started(partitions=4)
    before = world.topics["t"]
    row = ask(term, topic_request(count)).results[0]
    assert row.error_code == ErrorCode.POLICY_VIOLATION
    assert f"{ZNODE_BYTES_MAX:,} bytes (three quarters of jute.maxbuffer)" in row.error_message
    assert world.topics["t"] == before
    assert ask(term, topic_request(6)).results[0].error_code == ErrorCode.NONE


def test_manual_assignments_count_for_znode_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_size, "ZNODE_BYTES_MAX", 500)
    _, term = started(partitions=4)
    request = topic_request(40, assignments=[[1, 2]] * 36)
    assert ask(term, request).results[0].error_code == ErrorCode.POLICY_VIOLATION
    assert ask(term, topic_request(8, assignments=[[1, 2]] * 4)).results[0].error_code == ErrorCode.NONE


def test_merge_is_refused_without_room_for_tombstones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a drained partition's tombstone would not fit (R13)."""
    world, term = started(partitions=1, replication=1)
    assert ask(term, topic_request(32)).results[0].error_code == ErrorCode.NONE
    monkeypatch.setattr(topic_size, "ZNODE_BYTES_MAX", 1500)
    assert ask(term, topic_request(1, shrink=True)).results[0].error_code == ErrorCode.POLICY_VIOLATION
    assert ask(term, topic_request(28, shrink=True)).results[0].error_code == ErrorCode.NONE
    body = world.topics["t"].body
    tombstone = Retired(7, 1 << 40, ((0, 0), (1, 0), (2, 1)))
    whole = {**body.retired, **dict.fromkeys(range(28, 32), tombstone)}
    assert len(znodes.encode_topic(resize.replace(body, retired=whole))) < 1500


def test_too_large_reassignments_are_refused_and_others_start(monkeypatch: pytest.MonkeyPatch) -> None:
    world, term = started(brokers=6, partitions=8, replication=1)
    size = len(znodes.encode_topic(world.topics["t"].body))
    monkeypatch.setattr(topic_size, "ZNODE_BYTES_MAX", size + 60)
    everything = {index: [4, 5, 6] for index in range(8)}
    assert set(term.reassign(everything).values()) == {ErrorCode.POLICY_VIOLATION}
    assert not term.moving()
    assert term.reassign({0: [4, 5]}) == {0: 0}
    monkeypatch.undo()
    monkeypatch.setattr(reassignment, "MOVES_BYTES", 1)
    version = world.topics["t"].version
    assert set(term.reassign({index: [5] for index in range(1, 4)}).values()) == {0}
    assert world.topics["t"].version == version + 3, "one state at a time beside the znode"


async def test_too_large_new_topic_leaves_nothing() -> None:
    session = await MemoryZooKeeper().connect()
    assignment = {index: list(range(100)) for index in range(4000)}
    with pytest.raises(KafkaError, match="fewer partitions") as refused:
        await topic_admin.create_topic(
            session, name="t", topic_id=bytes(16), assignment=assignment, configs={"retention.ms": "1"}
        )
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    assert await session.exists(paths.topic_config("t")) is None
    with pytest.raises(KafkaError, match="too large for one ZooKeeper request"):
        await topic_admin.create_topic(
            session, name="t", topic_id=bytes(16), assignment={0: [1]}, configs={"a": "b" * REQUEST_BYTES_MAX}
        )


async def test_too_large_configuration_is_refused() -> None:
    session = await MemoryZooKeeper().connect()
    await change_config(session, "topics/t", lambda known: {**known, "a": "b"})
    with pytest.raises(KafkaError, match="too large for one znode") as refused:
        await change_config(session, "topics/t", lambda known: {**known, "a": "b" * REQUEST_BYTES_MAX})
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    assert b'"b"' in (await session.get(paths.topic_config("t")))[0]


# ------------------------------------------------------------------ a server that was told a smaller jute.maxbuffer


def hang_up(monkeypatch: pytest.MonkeyPatch, limit_bytes: int) -> list[int]:
    """Sessions lose their connection over a larger multi; the sizes of those that were sent all the same."""
    sent: list[int] = []
    multi = MemorySession.multi

    async def picky(self: MemorySession, ops: list[Op]) -> Any:
        if multi_bytes(ops) > limit_bytes:
            sent.append(multi_bytes(ops))
            raise ConnectionLoss
        return await multi(self, ops)

    monkeypatch.setattr(MemorySession, "multi", picky)
    monkeypatch.setattr(candidacy, "SUSPECT_BYTES", limit_bytes)
    return sent


async def test_repeatedly_lost_request_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    session = await MemoryZooKeeper().connect()
    await session.create("/controller_epoch", b"1")
    sent = hang_up(monkeypatch, 500)
    with pytest.raises(TooLarge):
        await commit_fenced(session, ControllerTenure(1, 0), [Create("/a", bytes(1000))])
    assert len(sent) == candidacy.LOSSES_MAX
    await commit_fenced(session, ControllerTenure(1, 0), [Create("/a", b"")])


async def test_refused_transaction_of_states_is_written_state_by_state(monkeypatch: pytest.MonkeyPatch) -> None:
    at = await desk(in_turn=False)
    hang_up(monkeypatch, 500)
    state = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1,), controller_epoch=1, gen_start=((0, 0),))
    outcome = await at.writer.partitions(
        WritePartitions((write(0, state, None), write(1, state, None)), "create", True)
    )
    assert sorted(one.partition for one in outcome.written) == [0, 1] and not outcome.lost
    removed = await at.writer.remove_topic("t")
    assert removed.name == "t" and await at.session.exists(paths.topic("t")) is None


async def test_plan_refused_by_server_fails_its_request_and_others_continue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = await TestCluster.start(brokers=1)
    await cluster.create_topic("large", partitions=4, replication=1)
    await cluster.create_topic("small", partitions=4, replication=1)
    hang_up(monkeypatch, 2000)
    refused = await cluster.resize("large", 400)
    assert refused.error_code == ErrorCode.POLICY_VIOLATION and "jute.maxbuffer" in refused.error_message
    assert (await cluster.topic("large")).plan is None
    for name in ("small", "large"):
        assert (await cluster.resize(name, 6)).error_code == 0
    await cluster.stop()


async def test_refused_publication_waits_and_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that the server refuses does not block others, and continues later."""
    cluster = await TestCluster.start(brokers=1, remind_interval_ms=50)
    await cluster.create_topic("large", partitions=4, replication=1)
    await cluster.create_topic("small", partitions=4, replication=1)
    multi, taken = MemorySession.multi, asyncio.Event()

    async def picky(self: MemorySession, ops: list[Op]) -> Any:
        publishes = any(isinstance(op, Set) and b'"history":[[0,4],[1,40]]' in op.data for op in ops)
        if publishes and not taken.is_set():
            raise TooLarge(ops[1].path, size_bytes=1)
        return await multi(self, ops)

    monkeypatch.setattr(MemorySession, "multi", picky)
    resizing = asyncio.ensure_future(cluster.resize("large", 40, timeout_ms=60_000))
    await cluster.until(lambda: len(cluster.seen("topic too large for ZooKeeper")) > 2)
    assert (await cluster.resize("small", 6)).error_code == 0
    taken.set()
    assert (await resizing).error_code == 0
    await cluster.stop()


async def test_states_with_long_history_are_split_by_size() -> None:
    at = await desk(in_turn=False)
    past = tuple((generation, generation) for generation in range(1000))
    state = LeaderAndIsr(leader=1, leader_epoch=999, isr=(1,), controller_epoch=1, generation=999, gen_start=past)
    writes = tuple(write(index, state, None) for index in range(200))
    assert sum(bytes_of(Create("", znodes.encode_partition_state(one.state))) for one in writes) > REQUEST_BYTES_MAX
    outcome = await at.writer.partitions(WritePartitions(writes, "create", True))
    assert len(outcome.written) == 200
    assert len(at.steps) < 20, "none was refused first and then written state by state"


def test_largest_topic_body_fits_with_other_operations() -> None:
    body = TopicBody(topic_id=bytes(16), assignment={0: (1,)})
    assert ZNODE_BYTES_MAX + reassignment.MOVES_BYTES < REQUEST_BYTES_MAX
    topic_size.check("t", body)
