"""Records the requests that a simulation's brokers accept, their responses, and their requests to the controller.

As in `probes`, each wrapper records and changes nothing, and one that no longer fits the product fails loudly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from anabranch.broker.dispatch.dispatcher import Dispatcher
from anabranch.broker.handlers import delete_topics, list_offsets
from anabranch.broker.membership.controller_fence import ControllerFence
from anabranch.broker.replication.isr_changes import IsrChanges
from anabranch.broker.replication.partition import Partition
from anabranch.chaos.replication_events import (
    Admitted,
    DeletionRequested,
    IsrAnswered,
    IsrRequest,
    IsrVersion,
    ReportedEnd,
)
from anabranch.protocol.error_codes import error_codes
from anabranch.protocol.errors import ErrorCode
from tests.sim.cluster import SimCluster
from tests.sim.loop import PROCESS
from tests.sim.probes import wrap


@contextlib.contextmanager
def watching(cluster: SimCluster) -> Iterator[None]:
    """Record into the cluster's history for as long as this lasts."""
    probes = RequestProbes(cluster)
    with contextlib.ExitStack() as stack:
        wrap(
            stack,
            (ControllerFence, "admit", probes.admit),
            (Dispatcher, "answer", probes.answer),
            (delete_topics, "mark", probes.mark),
            (list_offsets, "offset_of", probes.offset_of),
            (IsrChanges, "_deliver", probes.deliver),
            (Partition, "on_answer", probes.on_answer),
        )
        yield


class RequestProbes:
    """The wrappers."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._history = cluster.history

    def admit(self, original: Any, fence: ControllerFence, *, controller_epoch: int, broker_epoch: int) -> None:
        original(fence, controller_epoch=controller_epoch, broker_epoch=broker_epoch)
        node = self._node()
        row = Admitted(self._history.tick(), node, self._life(node), controller_epoch, broker_epoch, fence.broker_epoch)
        self._history.admitted.append(row)

    async def answer(self, original: Any, dispatcher: Dispatcher, request: Any, peer: Any) -> Any:
        response = await original(dispatcher, request, peer)
        if response is not None:
            name, version, answers = request.api.name, request.version, self._history.answers
            for code in error_codes(response, type(response)):
                answers[name, version, code] += 1
        return response

    async def mark(self, original: Any, ctx: Any, requested: Any, spending: Any) -> Any:
        names = ctx.services.metadata.image.names
        name = requested.name if requested.name is not None else names.get(requested.topic_id)
        if name is not None:
            self._history.deletions.append(DeletionRequested(self._history.tick(), self._node(), name))
        return await original(ctx, requested, spending)

    async def offset_of(self, original: Any, ctx: Any, request: Any, topic: str, asked: Any) -> Any:
        row = await original(ctx, request, topic, asked)
        of_everything = (
            request.replica_id == list_offsets.CONSUMER and request.isolation_level == list_offsets.READ_UNCOMMITTED
        )
        if asked.timestamp == list_offsets.LATEST and of_everything:
            place = (topic, asked.partition_index)
            told = ReportedEnd(self._history.tick(), self._node(), place, row.leader_epoch, row.offset)
            self._history.reported_ends.append(told)
        return row

    async def deliver(self, original: Any, changes: IsrChanges, batch: Any) -> Any:
        node, order = self._node(), self._history.tick()
        rows = [IsrRequest(order, node, self._life(node), _place(partition)) for partition, _ in batch]
        self._history.isr_requests += rows
        try:
            return await original(changes, batch)
        finally:
            order = self._history.tick()
            for row in rows:
                row.response_order = order

    def on_answer(self, original: Any, partition: Partition, change: Any, answer: Any) -> Any:
        before = _version_of(partition)
        verdict = original(partition, change, answer)
        if answer.error_code == ErrorCode.NONE:
            granted = IsrVersion(answer.leader_epoch, answer.partition_epoch, tuple(answer.isr))
            after = _version_of(partition)
            row = IsrAnswered(self._history.tick(), self._node(), _place(partition), granted, before, after)
            self._history.isrs_answered.append(row)
        return verdict

    def _node(self) -> int:
        process = PROCESS.get()
        assert process is not None, "brokers alone do this"
        return next(one.node_id for one in self._cluster.machines.values() if one.host == process.host)

    def _life(self, node: int) -> int:
        return self._cluster.machines[node].life


def _place(partition: Partition) -> tuple[str, int]:
    return partition.topic, partition.index


def _version_of(partition: Partition) -> IsrVersion:
    return IsrVersion(partition.leader_epoch, partition.partition_epoch, partition.isr)
