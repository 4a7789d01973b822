"""The public `Consumer`: aiokafka's shape, with keys that keep their order while partitions split and merge.

Everything that must happen in order happens inside the call that asks for records (`getmany`, `getone`, `async for`),
in this order: boundaries that were reached are flushed and committed, a lapsed membership joins again, positions are
committed if it is time, opened gates are announced, records are handed out. Whatever was handed out before such a call
counts as processed (or, without auto-commit, once it is committed). Fetching, heartbeats and questions about gates go
on in between. A call that is cancelled, or in which a callback raises, is taken up where it stopped by the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from anabranch.clients.clock import follow_loop_ms
from anabranch.clients.config import NetworkConfig, parse_servers
from anabranch.clients.consumer.assignors import ASSIGNORS, make_assignors
from anabranch.clients.consumer.consumer_partition_assignor import PartitionAssignor
from anabranch.clients.consumer.core import ConsumerCore
from anabranch.clients.consumer.delivery import ConsumerRecord
from anabranch.clients.consumer.delivery_audit import DeliveryAudit
from anabranch.clients.consumer.fetcher import Fetcher
from anabranch.clients.consumer.gatekeeper import Gatekeeper
from anabranch.clients.consumer.group_session import GroupSession
from anabranch.clients.consumer.joiner import Joiner
from anabranch.clients.consumer.listener import PartitionKeyRebalanceListener
from anabranch.clients.consumer.membership import Membership
from anabranch.clients.consumer.metrics import ConsumerMetrics, metrics_of
from anabranch.clients.consumer.offset_committer import OffsetCommitter
from anabranch.clients.consumer.offset_lookup import (
    EARLIEST,
    ISOLATION_LEVELS,
    LATEST,
    OffsetAndTimestamp,
    OffsetResets,
    find_offsets,
)
from anabranch.clients.consumer.polling import Polling
from anabranch.clients.consumer.starting_positions import StartingPositions
from anabranch.clients.consumer.topic_gates import GateOpening, GateView
from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.clients.metadata import ClusterMetadata
from anabranch.clients.network import Network, make_rng
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.lineage import Lineage, Segment
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

ASSURANCE_PATIENCE_S: Final = 2.0
"""How long a consumer that stops waits to hear whether the group still takes its commit."""


class Consumer:
    """Reads topics, alone (`group_id=None`, every partition) or as one member of a group.

    `isolation_level="read_committed"` hands out what belongs to no transaction, or to one that was committed. To copy
    exactly once, switch `enable_auto_commit` off and commit with `producer.send_offsets_to_transaction(offsets,
    consumer.group_metadata())`.

    `client_rack` is where this consumer runs: leaders send it to an in-sync follower in the same rack, where brokers
    have `replica.selector.class` set (KIP-392), and assignors know of it.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
        client_id: str = "anabranch",
        client_rack: str = "",
        group_id: str | None = None,
        group_instance_id: str | None = None,
        auto_offset_reset: str = "latest",
        isolation_level: str = "read_uncommitted",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        session_timeout_ms: int = 45000,
        rebalance_timeout_ms: int = 300000,
        heartbeat_interval_ms: int = 3000,
        partition_assignment_strategy: str | Sequence[str | PartitionAssignor] = tuple(ASSIGNORS),
        max_poll_records: int = 500,
        fetch_max_wait_ms: int = 500,
        request_timeout_ms: int = 40000,
        metadata_max_age_ms: int = 300000,
        ordered_delivery: bool = True,
        allow_auto_create_topics: bool = False,
        listener: PartitionKeyRebalanceListener | None = None,
        audit: str | None = None,
        clock_ms: Callable[[], int] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if not topics:
            raise ValueError('a consumer needs at least one topic: Consumer("orders", group_id="billing")')
        if audit is not None and group_id is None:
            raise ValueError("an audit is of a group: give group_id together with audit")
        if isolation_level not in ISOLATION_LEVELS:
            raise ValueError(f"isolation_level is one of {', '.join(ISOLATION_LEVELS)}, not {isolation_level!r}")
        self._topics = topics
        self._isolation_level = ISOLATION_LEVELS[isolation_level]
        self._resets = OffsetResets(auto_offset_reset, self._isolation_level)
        self._max_poll_records = max_poll_records
        self._fetch_max_wait_ms = fetch_max_wait_ms
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._client_rack = client_rack
        self._creates_topics = allow_auto_create_topics
        self._listener = listener or PartitionKeyRebalanceListener()
        self._audit_topic = audit
        self._chosen_clock_ms = clock_ms
        self._rng = make_rng(rng)
        self._network_config = NetworkConfig(
            bootstrap_servers=parse_servers(bootstrap_servers),
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            metadata_max_age_ms=metadata_max_age_ms,
        )
        membership = None
        assignors = make_assignors(partition_assignment_strategy)
        if group_id is not None:
            membership = Membership(
                group_id,
                topics,
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                heartbeat_interval_ms=heartbeat_interval_ms,
                assignors=assignors,
                group_instance_id=group_instance_id,
                client_rack=client_rack,
            )
        self._core = ConsumerCore(
            topics,
            membership,
            ordered=ordered_delivery,
            auto_commit_s=auto_commit_interval_ms / 1000 if enable_auto_commit and membership is not None else None,
            audited=audit is not None,
            holds_back=self._listener.holds_back,
        )
        self._audit: DeliveryAudit | None = None
        self._session: GroupSession | None = None
        self._joiner: Joiner | None = None
        self._started = False
        self._delivered = 0

    # life

    async def start(self) -> None:
        """Connect. `ConnectionError` when no server answers. The group is joined by the first request for records."""
        if self._started:
            raise RuntimeError("a consumer is started once")
        self._clock_ms = self._chosen_clock_ms or follow_loop_ms()
        self._news = asyncio.Event()
        self._network = Network(self._network_config, self._rng)
        if not self._creates_topics:
            self._network.without_auto_creation()
        self._network.follow(*self._topics)
        try:
            await self._network.start()
            if self._audit_topic is not None:
                group_id = "" if self._core.membership is None else self._core.membership.group_id
                self._audit = DeliveryAudit.to(self._audit_topic, self._network_config, group_id, self._rng)
                await self._audit.start()
        except BaseException:
            await self._network.close()
            raise
        self._wire()
        self._started = True
        if self._session is None:
            try:
                await self._polling.settle()
            except BaseException:
                await self.stop()
                raise

    def _wire(self) -> None:
        """Make the parts that gather news for the core and carry its steps out: each knows only what was made before.

        All of them wake a waiting request for records by setting `news`.
        """
        network, core, news = self._network, self._core, self._news
        self._end_listening = network.on_metadata(self._learn)
        self._learn(network.metadata)
        if core.membership is not None:
            self._session = GroupSession(
                network,
                core.membership,
                heartbeat_interval_ms=self._heartbeat_interval_ms,
                rebalance_timeout_ms=self._rebalance_timeout_ms,
                news=news,
            )
            self._joiner = Joiner(
                network, core.ownership, self._session, self._topics, clock_ms=self._clock_ms, news=news
            )
        self._gatekeeper = Gatekeeper(network, core.gates, self._session, news)
        self._committer = OffsetCommitter(core, self._session, self._audit)
        self._fetcher = Fetcher(
            network,
            core.assignment,
            max_wait_ms=self._fetch_max_wait_ms,
            on_arrival=news.set,
            isolation_level=self._isolation_level,
            client_rack=self._client_rack,
            replica_lease_ms=self._network_config.metadata_max_age_ms,
        )
        self._polling = Polling(
            network,
            core,
            self._session,
            self._joiner,
            StartingPositions(network, core, self._session, self._resets),
            self._committer,
            self._gatekeeper,
            self._fetcher,
            self._listener,
            news=news,
        )
        self._gatekeeper.start()

    def _learn(self, metadata: ClusterMetadata) -> None:
        self._core.learn(metadata)
        self._news.set()

    async def stop(self) -> None:
        """Flush, commit (unless that is the application's own business), leave the group, disconnect."""
        if not self._started:
            return
        self._started = False
        self._polling.close()
        try:
            if self._joiner is not None:
                await self._joiner.close()
            if self._session is not None:
                with contextlib.suppress(KafkaError):  # then it is lost, and that is told
                    await self._session.assured(timeout_s=ASSURANCE_PATIENCE_S)
            await self._polling.give_up()
        finally:
            self._fetcher.close()
            self._end_listening()
            try:
                if self._audit is not None:
                    await self._audit.stop()
            finally:
                await self._gatekeeper.close()
                if self._session is not None:
                    await self._session.leave()
                await self._network.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    # records

    async def getmany(
        self, *, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Records by partition, in order; empty when none may be handed out within `timeout_ms`."""
        limit = self._max_poll_records if max_records is None else max_records
        self._check_started()
        taken = await self._polling.many(limit, timeout_ms)
        for records in taken.values():
            self._delivered += len(records)
            self._note(records)
        return taken

    async def getone(self) -> ConsumerRecord:
        """The next record, however long it takes."""
        if not self._started:
            self._check_started()
        record = await self._polling.one(self._max_poll_records)
        self._delivered += 1
        if self._audit is not None:
            self._note((record,))
        return record

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        return await self.getone()

    # positions

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer reads now."""
        return {progress.partition for progress in self._core.assignment}

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be handed out; -1 while unknown."""
        return self._core.assignment[partition].position

    def highwater(self, partition: TopicPartition) -> int:
        """The high watermark as of the last fetch; -1 while unknown."""
        return self._core.assignment[partition].high_watermark

    def last_stable_offset(self, partition: TopicPartition) -> int:
        """Where the oldest open transaction begins, as of the last fetch; -1 while unknown."""
        return self._core.assignment[partition].last_stable_offset

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at another offset. Gates are evaluated afresh; those of descendants do not close again (K608)."""
        self._core.seek(partition, offset)
        self._fetcher.poke()
        self._news.set()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first record that is stored: of these partitions, or of all that are assigned."""
        await self._seek_to(EARLIEST, partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue behind the last record that may be handed out: of these partitions, or of all that are assigned."""
        await self._seek_to(LATEST, partitions)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs of these partitions begin, assigned or not. TimeoutError if one has no leader for so long."""
        return await self._offsets_at(dict.fromkeys(partitions, EARLIEST))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where reading ends now: at the high watermark, or for `read_committed` where a transaction is still open."""
        return await self._offsets_at(dict.fromkeys(partitions, LATEST))

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition that is as new as its timestamp; None if all are older."""
        if any(timestamp_ms < 0 for timestamp_ms in timestamps_ms.values()):
            raise ValueError("a timestamp is in ms since 1970, and not negative")
        return await self._find_offsets(timestamps_ms)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these partitions until they are resumed."""
        for partition in partitions:
            self._core.assignment[partition].pause()

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with paused partitions. A closed gate stays closed."""
        for partition in partitions:
            self._core.assignment[partition].resume()
        self._fetcher.poke()
        self._news.set()

    def segment(self, partition: TopicPartition) -> tuple[Lineage, Segment] | None:
        """The segment whose records are handed out next, with its topic's lineage: all before it has been handed out.

        None in a topic without order, and while there is no position.
        """
        return self._core.deliveries.segment(self._core.assignment[partition])

    def assigned_lineage(self, topic: str) -> Lineage | None:
        """What resizes had done to a topic when the assignment was made; None in a topic without order."""
        known = self._network.metadata.topics.get(topic)
        made_from = self._core.assignment.generations.get(topic)
        if known is None or known.lineage is None or made_from is None or known.generation < made_from:
            return None
        return known.lineage.until(made_from)

    def lineage(self, topic: str) -> Lineage | None:
        """What resizes have done to a topic, as far as is known here; None in a topic without order."""
        gate = self._core.gates.gate(topic)
        return None if gate is None else gate.lineage

    def partitions_of(self, topic: str) -> Collection[int]:
        """The partitions that a topic has now, those included that are to be removed when they are empty."""
        known = self._network.metadata.topics.get(topic)
        return () if known is None else known.partitions.keys()

    @property
    def rebalancing(self) -> bool:
        """Whether the group rebalances while this member goes on reading: what it commits now may be refused."""
        return self._core.ownership.joining

    def gates(self) -> list[GateView]:
        """Every closed gate of this consumer, and what it waits for."""
        return self._core.gates.views()

    def gate_openings(self) -> list[GateOpening]:
        """The gates that opened lately, with how long each was closed."""
        return list(self._core.gates.openings)

    def metrics(self) -> ConsumerMetrics:
        """How far this consumer is, what waits behind gates, and how long gates were closed."""
        return metrics_of(self._core, delivered=self._delivered, commits=self._session.commits if self._session else 0)

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit the positions, or these offsets. `KafkaError` when the group has moved on.

        Says that everything before is processed, so a boundary that is reached by it is flushed first.
        """
        if self._joiner is None:
            raise ValueError("committing needs a group_id")
        await self._joiner.joined(timeout_ms=self._network_config.request_timeout_ms)
        await self.check_membership()
        await self._polling.commit(offsets)

    def enforce_rebalance(self) -> None:
        """Have the group assign its partitions anew, though nothing has changed: with the next request for records."""
        if self._joiner is None:
            raise ValueError("rebalancing needs a group_id")
        self._joiner.want_rebalance()

    async def flush_audit(self) -> None:
        """Return when every delivery so far stands in the audit; without an audit, at once. `RuntimeError` when some
        cannot.

        Commits do it by themselves: `commit`, automatic ones, and `send_offsets_to_transaction` with what
        `group_metadata` gave. Who commits for the group in another way calls this before.
        """
        await self._committer.flush_audit()

    async def committed(self, partition: TopicPartition) -> int | None:
        """The group's committed offset of a partition; None if there is none."""
        if self._session is None:
            raise ValueError("committed offsets need a group_id")
        offset = await self._session.committed_when_stable(partition)
        return None if offset < 0 else offset

    async def stable(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Those of which no open transaction is about to commit an offset for the group."""
        if self._session is None:
            raise ValueError("committed offsets need a group_id")
        return (await self._session.committed(sorted(partitions))).keys()

    @property
    def generation(self) -> int:
        """The group's generation in which this member was last given partitions; -1 before that, and without a group.

        Whoever is given these partitions next has a higher one. That makes it a fencing token for records that leave
        the consumer's care: take it when you are given records, write it beside what they become, and have the store
        refuse what comes with a lower one than it knows. So a process that was stopped with a record in its hands
        overwrites nothing when it goes on (README, "Processes that stop"). Only who takes over a static member's place
        may be in the same generation.
        """
        return -1 if self._core.membership is None else self._core.membership.owner.generation_id

    async def check_membership(self) -> None:
        """KafkaError unless what this member was given is its own at this moment: ask before an effect that nothing
        fences. Quick, unless the coordinator has not been heard of for so long that it has to be asked.
        """
        if self._session is None:
            raise ValueError("there is no group without a group_id")
        await self._session.assured(timeout_s=self._network_config.request_timeout_ms / 1000)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """As whom this member reads, for `producer.send_offsets_to_transaction`: a later generation refuses it.

        Also when the membership has lapsed meanwhile: without member and generation nobody would be refused. With an
        audit it carries the flush that has to come before the offsets (`flush_audit`).
        """
        if self._core.membership is None:
            raise ValueError("there is no group without a group_id")
        owner = self._core.membership.owner
        return owner if self._audit is None else owner._replace(before_commit=self._audit.flush)

    # inside

    def _check_started(self) -> None:
        if not self._started:
            raise RuntimeError("the consumer is not started, or was stopped")
        self._polling.check_alive()

    async def _seek_to(self, end: int, partitions: Collection[TopicPartition]) -> None:
        for partition, offset in (await self._offsets_at(dict.fromkeys(partitions or self.assignment(), end))).items():
            self.seek(partition, offset)

    async def _offsets_at(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = await self._find_offsets(ends)
        return {partition: one.offset for partition, one in found.items() if one is not None}

    async def _find_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        self._check_started()
        return await find_offsets(self._network, wanted, self._isolation_level)

    def _note(self, records: Sequence[ConsumerRecord]) -> None:
        """These records of one partition are handed out. Nothing is awaited here: see `polling`."""
        if self._audit is not None and self._session is not None:
            begun = self._core.assignment[TopicPartition(records[0].topic, records[0].partition)].begun
            self._audit.note(records, owner=self._session.membership.owner, now_ms=self._clock_ms(), begun=begun)
