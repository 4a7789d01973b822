"""Records resizes in a simulation: ZooKeeper's commits, leaders' responses, and clients' metadata.

As in `probes`, each wrapper records and changes nothing, and one that no longer fits the product fails loudly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from anabranch.broker.handlers import offset_for_leader_epoch
from anabranch.broker.replication.legacy_producers import LegacyProducers
from anabranch.broker.replication.partition import Partition
from anabranch.chaos.resize_events import EpochEndReported, Gated, LetIn, Refused, Retired, Shown, TopicWritten
from anabranch.clients.consumer.topic_gates import Gates
from anabranch.clients.metadata import ClusterMetadata
from anabranch.controller.model import TopicBody
from anabranch.controller.zk import paths, znodes
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.sim.cluster import SimCluster
from tests.sim.history import Seen
from tests.sim.loop import PROCESS
from tests.sim.probes import wrap
from tests.sim.zookeeper import Change


@contextlib.contextmanager
def watching(cluster: SimCluster) -> Iterator[ResizeProbes]:
    """Record into the cluster's history for as long as this lasts."""
    probes = ResizeProbes(cluster)
    cluster.zookeeper.on_change.append(probes.changed)
    with contextlib.ExitStack() as stack:
        wrap(
            stack,
            (offset_for_leader_epoch, "end_of_epoch", probes.end_of_epoch),
            (Partition, "check_generation", probes.check_generation),
            (LegacyProducers, "check", probes.check_legacy),
            (Gates, "passes", probes.passes),
            (ClusterMetadata, "update", probes.updated),
        )
        yield probes


class ResizeProbes:
    """The wrappers."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._history = cluster.history
        self._events = cluster.history.resizes
        self._stubs: dict[str, dict[int, int]] = {}
        self._shown: dict[tuple[str, str], tuple[str, int, dict[int, int]]] = {}
        self._with_generations: set[tuple[int, bytes, int, int]] = set()
        self._steps = 0

    # --- ZooKeeper

    def changed(self, change: Change) -> None:
        if paths.parent(change.path) != paths.TOPICS or change.data is None:
            return
        name, body = paths.name(change.path), znodes.decode_topic(change.path, change.data)
        retired = {index: (past.leader_epoch, past.end_offset) for index, past in body.retired.items()}
        plan = None if body.plan is None else (body.plan.generation, body.plan.before, body.plan.after)
        self._events.topics.append(
            TopicWritten(
                self._history.tick(),
                name,
                body.generation,
                body.base,
                body.initial_partition_count,
                body.undeleted_partition_count,
                plan,
                tuple(sorted(body.assignment)),
                retired,
                body.has_generations,
                body.topic_id.hex(),
            )
        )
        known = self._stubs.setdefault(name, {})
        for index, (epoch, end) in sorted(retired.items()):
            if known.get(index) != epoch:
                known[index] = epoch
                self._retired(name, body, index, epoch, end)

    def _retired(self, name: str, body: TopicBody, index: int, epoch: int, end: int) -> None:
        state = dict(self._cluster.states()).get((name, index))
        logs = {}
        for broker_id in body.assignment.get(index, ()):
            one = self._cluster.replica(broker_id, name, index)
            if one is not None:
                logs[broker_id] = (one.log.log_start_offset, one.log.log_end_offset, one.last_stable_offset)
        leader = -1 if state is None else state.leader
        led = self._cluster.replica(leader, name, index)
        if led is not None and not led.is_leader:
            logs.pop(leader, None)  # it was restarted this moment, and its log is not loaded by a leader's rules yet
        sealed = state is not None and state.sealed and state.leader_epoch == epoch
        self._events.retired.append(Retired(self._history.tick(), (name, index), epoch, end, leader, sealed, logs))

    # --- leaders

    def end_of_epoch(self, original: Any, ctx: Any, topic: str, asked: Any, *, consumer: bool = True) -> Any:
        answer = original(ctx, topic, asked, consumer=consumer)
        partition = ctx.services.replicas.replica(topic, asked.partition)
        closed = partition is not None and asked.leader_epoch < partition.leader_epoch
        if consumer and closed and partition is not None and answer.end_offset >= 0:
            self._events.boundaries.append(
                EpochEndReported(
                    self._history.tick(),
                    partition._rules.broker_id,
                    (topic, asked.partition),
                    partition.leader_epoch,
                    asked.leader_epoch,
                    answer.end_offset,
                )
            )
        return answer

    def check_generation(self, original: Any, partition: Partition, batch_generation: int) -> None:
        try:
            original(partition, batch_generation)
            stay = (partition._rules.broker_id, partition.topic_id, partition.index, partition.leader_epoch)
            if stay not in self._with_generations:
                self._with_generations.add(stay)
                self._let_in(partition, has_generations=True)
        except KafkaError as error:
            if error.code is ErrorCode.INVALID_PARTITION_METADATA:
                self._cluster.fired["batch refused for its generation"] += 1
                place = (partition.topic, partition.index)
                node, generation, sealed = partition._rules.broker_id, partition.generation, partition.sealed
                self._events.refused.append(
                    Refused(self._history.tick(), node, place, batch_generation, generation, sealed)
                )
            raise

    def check_legacy(self, original: Any, legacy: LegacyProducers, partition: Partition, fit: Any) -> None:
        fired, policy = self._cluster.fired, legacy._topic_config(partition.topic).reshard_legacy_producers
        try:
            original(legacy, partition, fit)
        except KafkaError as error:
            if error.code is ErrorCode.POLICY_VIOLATION:
                fired[f"stock: refused by {policy}"] += 1
            raise
        if partition.generation > 0:
            fired[f"stock: let in by {policy}"] += 1
            self._let_in(partition, has_generations=False, policy=policy)

    def _let_in(self, partition: Partition, *, has_generations: bool, policy: str = "") -> None:
        node, place = partition._rules.broker_id, (partition.topic, partition.index)
        row = LetIn(self._history.tick(), node, place, has_generations, partition.generation, policy)
        self._events.let_in.append(row)

    # --- clients

    def passes(self, original: Any, gates: Gates, topic: str, key_epoch: Any, now_s: float) -> bool:
        known = (topic, key_epoch) in gates.closed
        is_open: bool = original(gates, topic, key_epoch, now_s)
        if not is_open and not known:
            self._cluster.fired["gate closed"] += 1
            self._events.gated.append(Gated(self._history.tick(), self._process(), topic, key_epoch))
        if is_open and known:
            self._cluster.fired["gate opened"] += 1
        return is_open

    def updated(self, original: Any, metadata: ClusterMetadata, response: Any, **options: Any) -> ClusterMetadata:
        process = self._process()
        for topic in response.topics:
            if topic.name is None or topic.error_code or not topic.partitions or topic.base < 1:
                continue
            epochs = {row.partition_index: row.leader_epoch for row in topic.partitions}
            topic_id = topic.topic_id.hex()
            now = (topic_id, topic.generation, epochs)
            if self._shown.get((process, topic.name)) != now:
                self._shown[process, topic.name] = now
                row = Shown(self._history.tick(), process, topic.name, topic.generation, epochs, topic_id)
                self._events.shown.append(row)
        after: ClusterMetadata = original(metadata, response, **options)
        for name, known in after.topics.items():
            # Of this client alone: a process may have several, and each begins with what it is told first.
            before = metadata.topics.get(name)
            if before is not None and before.topic_id == known.topic_id and known.generation != before.generation:
                self._steps += 1
                what = f"generation of {name} as a client knows it, change {self._steps}"
                self._history.seen.append(Seen(self._history.tick(), process, what, before.generation))
                self._history.seen.append(Seen(self._history.tick(), process, what, known.generation))
        return after

    def _process(self) -> str:
        process = PROCESS.get()
        return "-" if process is None else process.name
