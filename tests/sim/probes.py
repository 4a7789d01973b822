"""Records the internal state of a simulation's brokers next to the real state.

The product has no hooks for this. While probes are installed, a few of its functions are wrapped; each wrapper records
and changes nothing. A wrapper that no longer fits the product fails loudly, because it names what it wraps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any

from anabranch.broker.metadata.metadata_cache import MetadataCache
from anabranch.broker.replication import follower_log
from anabranch.broker.replication.partition import Partition, Role
from anabranch.broker.replication.purgatory import DelayedProduce
from anabranch.broker.storage.log import PartitionLog
from anabranch.chaos.replication_events import Acked, HighWatermark, Led, Proposed, Truncated
from anabranch.clients.consumer.classic_group_membership import ClassicMembership, HeartbeatOutcome
from anabranch.clients.consumer.classic_group_session import ClassicGroupSession
from anabranch.clients.consumer.committed_offsets import CommittedOffsets
from anabranch.clients.consumer.progress import PartitionProgress
from anabranch.controller import alter_partition
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.sim.cluster import SimCluster
from tests.sim.history import Assigned, OffsetsFetched, Seen
from tests.sim.loop import PROCESS


@contextlib.contextmanager
def watching(cluster: SimCluster) -> Iterator[None]:
    """Record into the cluster's history for as long as this lasts."""
    probes = Probes(cluster)
    with contextlib.ExitStack() as stack:
        Partition.high_watermark = property(_stored_high_watermark, probes.high_watermark)  # type: ignore[assignment,method-assign]
        stack.callback(lambda: delattr(Partition, "high_watermark"))
        wrap(
            stack,
            (Partition, "become_leader", probes.become_leader),
            (Partition, "delete_records_before", probes.delete_records_before),
            (PartitionLog, "apply_retention", probes.apply_retention),
            (DelayedProduce, "is_complete", probes.settled),
            (follower_log, "_truncate_to", probes.truncate_to),
            (MetadataCache, "apply", probes.apply_metadata),
            (alter_partition, "decide", probes.decide),
            (PartitionProgress, "seek", probes.seek),
            (ClassicGroupSession, "commit", probes.commit),
            (CommittedOffsets, "fetch", probes.committed),
            (ClassicMembership, "on_sync_response", probes.synced),
        )
        yield


Wrapping = tuple[Any, str, Callable[..., Any]]
"""Whose function it is, its name, and what is called in its place: with the function itself before its arguments."""


def wrap(stack: contextlib.ExitStack, *rows: Wrapping) -> None:
    """Put wrappers around functions until the stack is left."""
    for owner, name, wrapper in rows:
        original = getattr(owner, name)
        setattr(owner, name, _wrapped(wrapper, original))
        stack.callback(setattr, owner, name, original)


def _wrapped(wrapper: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        return wrapper(original, *args, **options)

    return call


def _stored_high_watermark(partition: Partition) -> int:
    value: int = partition.__dict__["high_watermark"]
    return value


class Probes:
    """The wrappers."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._history = cluster.history

    def ends(self, partition: Partition) -> dict[int, int]:
        """The real log end of each member of a leader's maximal ISR; -1 if unknown."""
        return self.ends_of(partition.maximal_isr, partition.topic, partition.index)

    def ends_of(self, members: Iterable[int], topic: str, index: int) -> dict[int, int]:
        """The real log end of each of these replicas."""
        found = {}
        for member in sorted(set(members)):
            machine = self._cluster.machines[member]
            replica = self._cluster.replica(member, topic, index)
            known = replica is not None and not machine.lost_power
            found[member] = replica.log.log_end_offset if known and replica is not None else -1
        return found

    def high_watermark(self, partition: Partition, offset: int) -> None:
        before = partition.__dict__.get("high_watermark")
        partition.__dict__["high_watermark"] = offset
        if before is None or before == offset:
            return
        leads = partition.role is Role.LEADER
        node = partition._rules.broker_id
        if offset < before and not leads and self._cluster.machines[node].lost_power:
            return
        self._history.high_watermarks.append(
            HighWatermark(
                self._history.tick(),
                node,
                self._cluster.machines[node].life,
                (partition.topic, partition.index),
                partition.leader_epoch,
                leads,
                before,
                offset,
                self.ends(partition) if leads else {},
            )
        )

    def become_leader(self, original: Any, partition: Partition, *args: Any) -> None:
        original(partition, *args)
        node = partition._rules.broker_id
        place = (partition.topic, partition.index)
        self._history.led.append(
            Led(
                self._history.tick(),
                node,
                self._cluster.machines[node].life,
                place,
                partition.leader_epoch,
                partition.topic_id.hex(),
            )
        )
        self._cluster.tell(f"node {node} leads {place[0]}-{place[1]} in epoch {partition.leader_epoch}")

    def delete_records_before(self, original: Any, partition: Partition, offset: int) -> int:
        start: int = original(partition, offset)
        self._history.note_deletion((partition.topic, partition.index), start)
        return start

    def apply_retention(self, original: Any, log: PartitionLog, now_ms: int, **options: Any) -> int:
        before = log.log_start_offset
        try:
            expired: int = original(log, now_ms, **options)
            self._cluster.fired["segment expired"] += expired
            return expired
        finally:
            if log.log_start_offset > before:
                topic, _, index = PurePosixPath(log.directory).name.rpartition("-")
                self._history.note_deletion((topic, int(index)), log.log_start_offset, only_read=False)

    def settled(self, original: Any, wait: DelayedProduce) -> bool:
        open_before = wait.code is None
        done: bool = original(wait)
        if open_before and wait.code is ErrorCode.NONE:
            partition = wait.partition
            self._history.acks.append(
                Acked(
                    self._history.tick(),
                    partition._rules.broker_id,
                    (partition.topic, partition.index),
                    wait.required_offset,
                    tuple(partition.isr),
                    self.ends(partition),
                    min(partition.min_insync_replicas, len(partition.replicas)),
                )
            )
        return done

    def truncate_to(self, original: Any, partition: Partition, offset: int) -> None:
        before = partition.high_watermark
        if self._cluster.machines[partition._rules.broker_id].lost_power:
            original(partition, offset)
            return
        self._history.truncations.append(
            Truncated(
                self._history.tick(),
                partition._rules.broker_id,
                (partition.topic, partition.index),
                partition.leader_epoch,
                min(offset, partition.log.log_end_offset),
                before,
            )
        )
        self._cluster.fired["truncation"] += partition.log.log_end_offset > offset
        original(partition, offset)

    def apply_metadata(self, original: Any, cache: MetadataCache, request: Any) -> None:
        original(cache, request)
        for name, topic in cache.image.topics.items():
            self._see(f"generation of {name} {topic.topic_id.hex()}", topic.generation)

    def decide(self, original: Any, state: Any, partition: Any, row: Any, **options: Any) -> Any:
        write = original(state, partition, row, **options)
        if write is not None:
            registered = {broker: state.brokers[broker].epoch for broker in write.state.isr if broker in state.brokers}
            named = {member.broker_id: member.broker_epoch for member in row.new_isr_with_epochs}
            leader = self._cluster.replica(write.state.leader, partition.topic, partition.partition)
            self._history.proposals.append(
                Proposed(
                    self._history.tick(),
                    (partition.topic, partition.partition),
                    write.state.isr,
                    named,
                    registered,
                    -1 if leader is None or not leader.is_leader else leader.high_watermark,
                    self.ends_of(write.state.isr, partition.topic, partition.partition),
                )
            )
        return write

    def seek(self, original: Any, progress: PartitionProgress, offset: int) -> None:
        original(progress, offset)
        reader = self._application()
        if reader is not None:
            reader.begin((progress.partition.topic, progress.partition.partition), offset)

    async def commit(
        self, original: Any, session: ClassicGroupSession, offsets: Any, check_owned: Any, topic_ids: Any
    ) -> None:
        reader = self._application()
        if reader is None or not offsets:
            await original(session, offsets, check_owned, topic_ids)
            return
        places = {(partition.topic, partition.partition): offset for partition, offset in sorted(offsets.items())}
        row = reader.committing(places, session.membership.generation)
        try:
            await original(session, offsets, check_owned, topic_ids)
        except KafkaError as error:
            row.outcome = "info" if error.code.retriable else "fail"
            raise
        row.outcome, row.acked_order = "ok", self._history.tick()

    async def committed(self, original: Any, committed: CommittedOffsets, partitions: Any) -> Any:
        reader = self._application()
        history = self._history if reader is None else reader.history
        asked = history.tick()
        offsets = await original(committed, partitions)
        places = {(partition.topic, partition.partition): offset for partition, offset in sorted(offsets.items())}
        if places:
            row = OffsetsFetched(asked, history.tick(), committed.group_id, places)
            history.fetched.append(row)
        return offsets

    def synced(self, original: Any, membership: ClassicMembership, response: Any) -> Any:
        fate, assigned = original(membership, response)
        if fate is HeartbeatOutcome.PROCEED:
            places = tuple((partition.topic, partition.partition) for partition in assigned.partitions)
            # In a group of both protocols, the id that a static member gets does not name its instance.
            instance, member = membership.instance_id, membership.member_id
            if instance is not None and not member.startswith(f"{instance}-"):
                member = f"{instance}-{member}"
            row = Assigned(self._history.tick(), membership.group_id, membership.generation, member, places)
            self._history.assigned.append(row)
            if membership.generation > 1:
                how = "cooperatively" if membership.cooperative else "eagerly"
                self._cluster.fired[f"member rebalanced {how}"] += 1
        return fate, assigned

    def _application(self) -> Any:
        process = PROCESS.get()
        return None if process is None else self._cluster.applications.get(process.host)

    def _see(self, what: str, number: int) -> None:
        process = PROCESS.get()
        name = "-" if process is None else process.name
        self._history.seen.append(Seen(self._history.tick(), name, what, number))
