"""Planted bugs that simulation once found in this product; see `planted`."""

from __future__ import annotations

import contextlib
import math
from typing import Any

from tests.sim.planted import Planter, plant


@plant(
    "found: a controller link stays with a deposed controller",
    aim="a controller is replaced while a broker connects to it",
)
def link_to_the_deposed(planter: Planter) -> None:
    from anabranch.broker.membership.controller_link import ControllerLink

    async def connected(link: Any) -> Any:
        async with link._opening:
            active = await link.active()
            if active is None:
                raise ConnectionError("there is no active controller")
            if link._connection is not None and not link._connection.closed:
                return link._connection
            link._connection = await link._open(active)
            return link._connection

    planter.replace(ControllerLink, "_connect", connected)


@plant("found: posted events are decided before outcomes")
def posted_first(planter: Planter) -> None:
    from collections import deque

    from anabranch.controller import machine
    from anabranch.controller.runner import Runner

    async def decide(runner: Any, event: Any) -> None:
        pending = deque([event])
        while pending:
            for effect in machine.step(runner.state, pending.popleft()):
                outcome = await runner._act(effect)
                if outcome is not None:
                    pending.append(outcome)
        runner.state.check()

    planter.replace(Runner, "_decide", decide)


@plant("found: a broker that knows nothing is believed about deletions")
def believe_the_ignorant(planter: Planter) -> None:
    from anabranch.clients.consumer.ownership import Ownership
    from anabranch.clients.metadata import ClusterMetadata
    from anabranch.protocol.apis.metadata import MetadataResponseBroker

    def updated(metadata: Any, response: Any, *, complete: bool) -> Any:
        if not response.brokers:
            response.brokers = [
                MetadataResponseBroker(node_id=one.node_id, host=one.host, port=one.port)
                for one in metadata.nodes.values()
            ]
        return original(metadata, response, complete=complete)

    def drop_other_topics(ownership: Any) -> set[Any]:
        topics = ownership.metadata.topics
        for name, topic_id in ownership._topic_ids.items():
            if name not in topics or topics[name].topic_id != topic_id:
                ownership._assignment.drop_topic(name)
        ownership._note_topics()
        return set()

    original = planter.replace(ClusterMetadata, "update", updated)
    planter.replace(Ownership, "_drop_other_topics", drop_other_topics)


@plant("found: a broker whose disk refused a partition is not told again")
def not_reminded(planter: Planter) -> None:
    from anabranch.controller import machine

    def remind(state: Any) -> list[Any]:
        state.to_remind.clear()
        return []

    planter.replace(machine, "on_remind", remind)


@plant("found: a log without sealed segments is flushed for ever")
def flush_for_ever(planter: Planter) -> None:
    from anabranch.broker.storage.durability import Durability

    def unflushed(known: Any) -> bool:
        return known.failure is None and known.recovery_point < known._segments.active.base_offset

    planter.replace(Durability, "has_sealed_unflushed", property(unflushed))


@plant(
    "found: the end of a session is an error of the broker's own",
    aim="a session ends while a topic is made",
)
def session_over(planter: Planter) -> None:
    """Both checks: the topic writers, and the dispatcher's answer that ZooKeeper does not respond."""
    from anabranch.broker.dispatch import dispatcher
    from anabranch.controller import topic_admin

    class NeverRaised(Exception):
        pass

    planter.replace(topic_admin, "_in_a_session", contextlib.nullcontext)
    planter.replace(dispatcher, "SessionExpired", NeverRaised)


@plant(
    "found: a controller takes the work of a later one for a bug",
    aim="a controller sleeps while another does its work",
)
def later_work(planter: Planter) -> None:
    from anabranch.controller.runner import Runner

    async def snapshots(runner: Any, names: Any) -> Any:
        return await runner._reader.snapshots(names)

    planter.replace(Runner, "_snapshots", snapshots)


@plant(
    "found: a broker is reminded of a replica that was deleted",
    aim="a broker whose disk is full hears of a topic that is deleted",
)
def reminded_of_the_deleted(planter: Planter) -> None:
    from anabranch.controller import machine
    from anabranch.controller.requests import RequestBatch

    def remind(state: Any) -> list[Any]:
        waiting, state.to_remind = sorted(state.to_remind), set()
        batch = RequestBatch(state)
        for broker, partition in waiting:
            if broker in state.brokers and partition in state.partitions and broker in state.assignment(partition):
                batch.remind(partition, broker)
        return batch.flush()

    planter.replace(machine, "on_remind", remind)


@plant(
    "found: a replica of a deleted namesake stays in the way",
    aim="a replica sleeps over the end of its topic and the birth of a namesake",
)
def namesake_stays(planter: Planter) -> None:
    from anabranch.controller import machine
    from anabranch.protocol.errors import ErrorCode

    def confirmed(state: Any, event: Any, request: Any, response: Any) -> Any:
        for topic in response.topics:
            for row in topic.partition_errors:
                if row.error_code == ErrorCode.INCONSISTENT_TOPIC_ID:
                    row.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        return original(state, event, request, response)

    original = planter.replace(machine, "on_leadership_confirmed", confirmed)


@plant(
    "found: a controller denies topics that it has not heard of",
    aim="a controller is asked for a topic that it has not heard of",
)
def deny_the_unknown(planter: Planter) -> None:
    from anabranch.broker.handlers import delete_topics
    from anabranch.protocol.errors import ErrorCode, KafkaError

    async def mark(ctx: Any, requested: Any, spending: Any) -> Any:
        if requested.name is not None and requested.name not in ctx.services.metadata.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, requested.name)
        return await original(ctx, requested, spending)

    original = planter.replace(delete_topics, "mark", mark)


@plant(
    "found: an end that is learned late is committed without a flush",
    aim="flushes take long, and ends are learned late",
)
def commit_at_a_late_end(planter: Planter) -> None:
    """What is learned of ends while the application flushes is not looked at before it asks again."""
    from anabranch.clients.consumer.core import ConsumerCore
    from anabranch.clients.consumer.delivery import Deliveries

    def begin_round(core: Any) -> None:
        original_round(core)
        core.deliveries.looked_at = {(one.progress.partition, one.segment) for one in original(core.deliveries)}

    def boundaries(deliveries: Any, *, maybe: bool = False) -> Any:
        found = original(deliveries, maybe=maybe)
        looked_at = getattr(deliveries, "looked_at", set())
        return found if maybe else [one for one in found if (one.progress.partition, one.segment) in looked_at]

    def short(deliveries: Any) -> Any:
        unsure = {one.progress.partition for one in original(deliveries, maybe=True) if one.maybe}
        return {progress.partition for progress in deliveries._assignment} - unsure

    original_round = planter.replace(ConsumerCore, "begin_round", begin_round)
    original = planter.replace(Deliveries, "boundaries", boundaries)
    planter.replace(Deliveries, "before_boundaries", short)


@plant(
    "found: the leader epochs are written and not flushed",
    aim="the power fails everywhere before a leader with a tail is back",
)
def epochs_not_flushed(planter: Planter) -> None:
    from anabranch.broker.storage.epochs import LeaderEpochCache

    def flush(cache: Any) -> None:
        if cache.unsaved:
            cache.save()

    planter.replace(LeaderEpochCache, "flush", flush)


@plant(
    "found: a truncation is not on the disk when the log goes on",
    aim="a truncated log rolls and its power fails",
)
def truncation_not_flushed(planter: Planter) -> None:
    from anabranch.broker.storage.durability import Durability
    from anabranch.broker.storage.log import PartitionLog

    truncating: list[Any] = []

    def truncate_to(log: Any, offset: int) -> Any:
        truncating.append(log)
        try:
            return original(log, offset)
        finally:
            truncating.pop()

    def attempt(known: Any, *how: Any, **options: Any) -> None:
        if not truncating:
            flush(known, *how, **options)

    original = planter.replace(PartitionLog, "truncate_to", truncate_to)
    flush = planter.replace(Durability, "attempt", attempt)


@plant(
    "found: a new life of an index begins with what an earlier leader had alone",
    aim="a leader with a tail sleeps over a removal and leads the next life of its index",
)
def tail_of_an_earlier_life(planter: Planter) -> None:
    from anabranch.broker.replication.partition import Partition

    def starts_lower(partition: Any, state: Any) -> bool:
        return bool(partition.log.log_start_offset < state.log_start_offset)

    planter.replace(Partition, "is_previous_incarnation", starts_lower)


@plant(
    "found: a replica whose records have rotted leads all the same",
    aim="a bit rots on a leader's disk while all brokers are dead",
)
def rotten_leader(planter: Planter) -> None:
    from anabranch.broker.replication import lost_data_check

    planter.replace(lost_data_check, "check_lost_data", lambda partition, state, broker_id, verdict: verdict)


@plant(
    "found: a leader whose flush has failed stays in office",
    aim="a flush of a leader's log fails",
)
def unflushed_leader(planter: Planter) -> None:
    from anabranch.broker.replication.partition import Partition

    planter.replace(Partition, "propose_resign", lambda partition, own_broker_epoch: None)


@plant(
    "found: a producer holds on to what was said of a topic that could not be used yet",
    aim="a topic is first written to while brokers are away",
)
def poisoned(planter: Planter) -> None:
    from anabranch.clients.network import Network
    from anabranch.protocol.errors import ErrorCode, KafkaError

    async def wait_for_topic(
        network: Any, topic: str, condition: Any, *, index: int = -1, timeout_ms: float | None = None
    ) -> Any:
        network.follow(topic)

        def reached(metadata: Any) -> bool:
            refused = metadata.errors.get(topic, ErrorCode.NONE)
            if refused != ErrorCode.NONE and not refused.retriable:
                raise KafkaError(refused, topic)
            return bool(condition(metadata))

        return await network.wait_for(reached, timeout_ms=timeout_ms)

    planter.replace(Network, "wait_for_topic", wait_for_topic)


@plant(
    "found: records that are deleted behind a closed gate are waited for",
    aim="records are deleted beyond a closed gate, and their partition gets another leader",
)
def deleted_records_stay(planter: Planter) -> None:
    from anabranch.clients.consumer.delivery import Deliveries

    planter.replace(Deliveries, "skip_deleted", lambda deliveries: [])


@plant(
    "found: a member that slept past its session trusts what it has",
    aim="a member sleeps past its session with records at hand",
)
def no_lease(planter: Planter) -> None:
    from anabranch.clients.consumer.lease import Lease

    def renew(lease: Any, sent_at_s: float, *, rebalancing: bool = False) -> None:
        lease.until = lease.known_until = math.inf

    planter.replace(Lease, "renew", renew)


@plant(
    "found: a fetch that is not answered is waited for, whatever the request timeout says",
    aim="a member's fetches do not go on",
)
def patient_fetches(planter: Planter) -> None:
    from anabranch.clients.connection import Connection
    from anabranch.protocol.apis.fetch import FetchRequest

    def send(connection: Any, request: Any, *, version: int | None = None, timeout_ms: float | None = None) -> Any:
        if isinstance(request, FetchRequest) and request.replica_id < 0:
            timeout_ms = request.max_wait_ms + 30_000
        return original(connection, request, version=version, timeout_ms=timeout_ms)

    original = planter.replace(Connection, "send", send)


@plant(
    "found: a restored node gives up while its earlier session lives",
    aim="a node is restored while its session lives",
)
def gives_up(planter: Planter) -> None:
    """It waits for as long as its own session would live."""
    import asyncio

    from anabranch.broker.membership import registration

    async def wait_until_free(session: Any, path: str, settings: Any, endpoints: Any) -> None:
        try:
            async with asyncio.timeout(settings.zookeeper_session_timeout_ms / 1000 * 1.5 + 1):
                await original(session, path, settings, endpoints)
        except TimeoutError:
            raise registration.DuplicateBroker("broker id is in use by another live node") from None

    original = planter.replace(registration, "_wait_until_free", wait_until_free)
