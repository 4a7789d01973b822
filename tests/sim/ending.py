"""The end of a schedule: faults end, the cluster must converge, and the logs are read.

Convergence is a promise, too (L1): every replica in sync, every change that was asked for carried out, every record
delivered and committed, each within a time. That groups are handed every record is a promise of its own (`liveness`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from anabranch.broker.dispatch.request_context import INTERNAL_TOPICS
from anabranch.broker.storage.epochs import EpochEntry
from anabranch.chaos.archive import records
from anabranch.chaos.replication_events import Stray
from anabranch.chaos.transaction_events import Marker
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.records.batch import iter_batches
from anabranch.protocol.records.control import ControlType, read_control
from tests.sim import liveness
from tests.sim.clients import GROUP, TOPIC, Application, Reader, Writer
from tests.sim.cluster import SimCluster
from tests.sim.copiers import OUT, Copier, uncopied
from tests.sim.history import Commit, History, OffsetsReset, Place, ReadStart

CONVERGENCE_S: Final = 40.0
HANDED_OUT_S: Final = 20.0
"""Less than the timeouts of the product that nothing but a lost answer brings about."""


class Ending:
    """What is left to be done when all faults are over."""

    def __init__(
        self,
        cluster: SimCluster,
        writers: Sequence[Writer],
        readers: Sequence[Reader],
        administrators: Sequence[Application],
        copiers: Sequence[Copier] = (),
        groups: Mapping[str, History] | None = None,
    ) -> None:
        self._cluster = cluster
        self._writers = writers
        self._readers = readers
        self._administrators = administrators
        self._copiers = copiers
        self._groups = {GROUP: cluster.history, **(groups or {})}

    async def converge(self) -> bool:
        """Whether everything came to rest; what did not is a failure of the run."""
        for application in (*self._writers, *self._administrators):
            application.stopping = True
        until = self._until
        settled = (
            await until(lambda: _done(self._administrators), "what administrators asked for is done")
            and await until(lambda: _done(self._writers), "the writers' records are settled")
            and await until(self._cluster.in_sync, "all replicas are in sync", self._laggards)
        )
        if not settled:
            return False
        all_handed = await liveness.all_handed_out(self._cluster, self._groups, self._ends, limit_s=HANDED_OUT_S)
        limit_s = CONVERGENCE_S if all_handed else 1.0  # it has had its time
        return (
            await until(
                self._all_delivered, "every record is delivered and committed", self._undelivered, limit_s=limit_s
            )
            and all_handed
            and (not self._copiers or await self._end_transactions())
            # Leaders may have moved back to where they are preferred meanwhile.
            and await until(self._cluster.in_sync, "all replicas are in sync again", self._laggards)
        )

    async def _until(
        self,
        condition: Callable[[], bool],
        what: str,
        why: Callable[[], Iterator[str]] = lambda: iter(()),
        *,
        limit_s: float = CONVERGENCE_S,
    ) -> bool:
        happened = await self._cluster.until(condition, limit_s, what)
        if not happened and (reasons := list(why())):
            self._cluster.history.failures[-1] += "; " + "; ".join(reasons)
        return happened

    async def _end_transactions(self) -> bool:
        history = self._cluster.history
        if not await self._until(
            lambda: not uncopied(history), "every record is copied and its copies read", lambda: iter(uncopied(history))
        ):
            return False
        for copier in self._copiers:
            copier.stopping = True
        return await self._until(lambda: all(one.settled for one in self._copiers), "the copiers have stopped")

    # --- why not

    def _laggards(self) -> Iterator[str]:
        cluster = self._cluster
        for machine in cluster.machines.values():
            if not machine.up:
                yield f"{machine.host} is down"
        for name, body in cluster.topics():
            if body.reassigned or body.plan:
                yield f"{name} moves {body.reassigned} and has the plan {body.plan}"
        assigned = cluster.assignments()
        for place, state in cluster.states():
            ids = assigned.get(place, ())
            replicas = [cluster.replica(one, *place) for one in ids]
            ends = [None if one is None else one.log.log_end_offset for one in replicas]
            if set(state.isr) != set(ids) or len(set(ends)) > 1:
                yield f"{place}: {state.leader}@{state.leader_epoch} isr {list(state.isr)} of {ids}, ends {ends}"

    def _ends(self) -> dict[Place, int]:
        ends = {}
        for place, state in self._cluster.states():
            led = self._cluster.replica(state.leader, *place)
            if place[0] == TOPIC and led is not None:
                ends[place] = led.log.log_end_offset
        return ends

    def _all_delivered(self) -> bool:
        committed = committed_offsets(self._cluster)
        return all(committed.get(place, 0) >= end for place, end in self._ends().items())

    def _undelivered(self) -> Iterator[str]:
        committed = committed_offsets(self._cluster)
        for place, end in self._ends().items():
            if committed.get(place, 0) < end:
                yield f"{place}: {committed.get(place, 0)} of {end}"
        for reader in self._readers:
            if reader.consumer is not None and reader.consumer._started:
                assigned = sorted(reader.consumer.assignment())
                yield f"{reader.identity}: gates {reader.consumer.gates()}, assigned {assigned}"

    # --- what is in the logs

    def collect(self) -> None:
        """Read every replica, and the records of the topics that clients wrote to."""
        history = self._cluster.history
        for name, body in self._cluster.topics():
            for index, past in body.retired.items():
                history.log_starts[name, index] = past.end_offset
        history.strays += self._strays()
        assigned = self._cluster.assignments()
        for place, state in self._cluster.states():
            history.log_starts.pop(place, None)
            data = self._read(place, state.leader, assigned[place])
            if place[0] == OUT:
                history.copied += records(place, data)
                history.markers += _markers(place, data)
            elif place[0] not in INTERNAL_TOPICS:
                history.stored += records(place, data)

    def _strays(self) -> Iterator[Stray]:
        existing = {body.topic_id: body.assignment for _, body in self._cluster.topics()}
        for machine in self._cluster.brokers:
            assert machine.node is not None, "all are up"
            for one in machine.node.services.replicas.partitions():
                where = existing.get(one.topic_id)
                if not any(one.topic_id) or (where is not None and machine.node_id in where.get(one.index, ())):
                    continue
                gone = "its partition was moved" if where and one.index in where else "its partition was removed"
                why = "the topic is gone" if where is None else gone
                yield Stray(machine.node_id, (one.topic, one.index), one.topic_id.hex(), why)

    def _read(self, place: Place, leader: int, broker_ids: Sequence[int]) -> bytes:
        cluster, history = self._cluster, self._cluster.history
        replicas = {one: cluster.replica(one, *place) for one in broker_ids}
        # A leader that dies at once takes a deletion with it, and its successor has the records still.
        start = max(one.log.log_start_offset for one in replicas.values() if one is not None)
        start = max(start, history.deleted_unread.get(place, 0))
        if start:
            history.log_starts[place] = start
        led = replicas[leader]
        assert led is not None
        contents = {}
        for broker_id, replica in replicas.items():
            process = cluster.machines[broker_id].process
            if replica is None or process is None:
                continue
            try:
                contents[broker_id] = process.context.copy().run(_content, replica.log, start, led.high_watermark)
            except KafkaError as error:
                history.failures.append(f"the log of {place} on broker {broker_id} cannot be read: {error}")
        cleaned_to = max(one.log.cleaned_to for one in replicas.values() if one is not None)
        history.replicas[place] = {one: _behind(content, cleaned_to) for one, content in contents.items()}
        caches = {
            broker_id: replica.log.epochs.entries
            for broker_id, replica in replicas.items()
            if replica is not None and not cluster.machines[broker_id].deceived
        }
        # A cache is shortened when records are deleted, and a power failure may bring just those back.
        since = max([start, *(entries[0].start_offset for entries in caches.values() if entries)])
        history.epoch_caches[place] = {
            broker_id: lineage(entries, since, led.high_watermark) for broker_id, entries in caches.items()
        }
        return contents.get(leader, b"")


def lineage(entries: Sequence[EpochEntry], start: int, end: int) -> tuple[tuple[int, int], ...]:
    """The epochs that wrote between two offsets, and where each began there."""
    ends = [*(one.start_offset for one in entries[1:]), end]
    begun = [(epoch, max(begin, start), min(until, end)) for (epoch, begin), until in zip(entries, ends, strict=False)]
    return tuple((epoch, begin) for epoch, begin, until in begun if begin < until)


def committed_offsets(cluster: SimCluster) -> dict[Place, int]:
    """What the members of the group were told is committed: by an answer, or by where they are to begin.

    A reset without a response may not have happened; then the members do not commit again what they have.
    """
    history, committed = cluster.history, dict[Place, int]()
    events: list[tuple[int, ReadStart | Commit | OffsetsReset]] = [(one.order, one) for one in history.read_starts]
    events += [(one.acked_order, one) for one in history.commits if one.outcome == "ok"]
    events += [(one.order, one) for one in history.resets if one.outcome == "ok"]
    for _, event in sorted(events, key=lambda one: one[0]):
        if isinstance(event, ReadStart):
            committed[event.place] = max(event.offset, committed.get(event.place, 0))
            continue
        for place, offset in event.offsets.items():
            known = offset if isinstance(event, OffsetsReset) else max(offset, committed.get(place, 0))
            committed[place] = known
    return committed


def _done(applications: Sequence[Application]) -> bool:
    return all(one.task is not None and one.task.done() for one in applications)


def _behind(content: bytes, offset: int) -> bytes:
    return next((content[at:] for at, header in iter_batches(content) if header.next_offset > offset), b"")


def _content(log: Any, start: int, end: int) -> bytes:
    chunks = []
    offset = start
    while offset < end:
        data = bytes(log.read(offset, 1 << 20, limit_offset=end))
        if not data:
            break
        chunks.append(data)
        for _, header in iter_batches(data):
            offset = header.next_offset
    return b"".join(chunks)


def _markers(place: Place, data: bytes) -> Iterator[Marker]:
    for start, header in iter_batches(data):
        if header.is_control:
            control = read_control(data, start)
            commit = control.type is ControlType.COMMIT
            identity = header.producer_id, header.producer_epoch
            yield Marker(place, header.base_offset, *identity, control.coordinator_epoch, commit)
