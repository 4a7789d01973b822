"""The public `Consumer`: shaped like aiokafka's; keys keep their order while partitions split and merge.

Everything that needs an order runs inside the call that asks for records (`getmany`, `getone`, `async for`), and
`core.ConsumerCore` decides it: flush and commit at the end of a key epoch, rejoin the group, commit periodically,
announce keys that other members handed over, and only then deliver records. With automatic commits, asking for more
means that everything delivered before is processed. Fetching, heartbeats and gate queries run in the background. After
a call that is cancelled, or in which a callback raises, the next call continues at the same step.

`Consumer` itself decides nothing: `ConsumerRuntime` creates the parts, and `Consumer` forwards the application's calls
to them.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import Never, Unpack

from anabranch.clients.config import NetworkConfig, parse_servers
from anabranch.clients.consumer.assignors import ASSIGNORS, make_assignors
from anabranch.clients.consumer.consumer_config import ConsumerConfig
from anabranch.clients.consumer.consumer_partition_assignor import PartitionAssignor
from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.consumer.consumer_runtime import ConsumerRuntime
from anabranch.clients.consumer.listener import PartitionKeyRebalanceListener
from anabranch.clients.consumer.metrics import ConsumerMetrics, metrics_of
from anabranch.clients.consumer.offset_lookup import EARLIEST, LATEST, OffsetAndTimestamp
from anabranch.clients.consumer.topic_gates import GateOpening, GateView
from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.clients.group_offsets import OFFSET_MAX, checked_offsets
from anabranch.clients.network import make_rng
from anabranch.clients.security import SecurityArguments
from anabranch.clients.security_config import make_security
from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.suggestion import refuse_unknown, suggest_arguments
from anabranch.protocol.topic_partition import TopicPartition


@suggest_arguments
class Consumer(ConsumerRuntime):
    """Reads topics, alone or as one member of a group, and keeps the order of every key across resizes.

        async with Consumer("orders", group_id="billing", auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                ...

    Ctrl-C cancels the task of `asyncio.run`, so the block ends: it commits, and leaves the group. Then `asyncio.run`
    raises KeyboardInterrupt; `contextlib.suppress(KeyboardInterrupt)` around it ends the program without a traceback.

    Partitions that a resize created are delivered once the group has read and committed their keys' earlier key epochs:
    until then their *gate* is closed (`gates`). To copy exactly once, switch `enable_auto_commit` off, read committed
    records only, and commit with `producer.send_offsets_to_transaction(offsets, consumer.group_metadata())`.

    Args:
        topics: The topics to read. One that does not exist yet is waited for. Without topics and without a group,
            `assign` chooses the partitions.
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of them: brokers from which the others are learned.
        client_id: The name under which brokers log and count this client's requests.
        client_rack: Where this consumer runs. Leaders send it to an in-sync follower in the same rack, where brokers
            have `replica.selector.class` set (KIP-392), and assignors know of it.
        group_id: The group among whose members the partitions are divided, and for which offsets are committed.
            None: this consumer reads all partitions, and commits nothing.
        group_instance_id: A name that this member keeps across restarts: its partitions wait for it for as long as its
            session lasts (KIP-345). Another consumer that starts with it takes its place at once.
        auto_offset_reset: Where to begin in a partition for which the group has no offset: "earliest", "latest",
            "by_duration:PT1H" (the first record of the last hour, as an ISO-8601 duration), or "none" (an error). A
            partition that a resize made is read from its start by a group that reads the topic.
        isolation_level: "read_uncommitted", or "read_committed": only what belongs to no transaction, or to a
            committed one.
        enable_auto_commit: Commit automatically what counts as processed: all records delivered before the last call.
        auto_commit_interval_ms: How often it does. Ends of key epochs are committed at once, because others wait.
        session_timeout_ms: After this time without a heartbeat the group gives this member's partitions to others.
            This member delivers nothing any more by then, whether it was stopped, blocked or cut off.
        rebalance_timeout_ms: How long the group waits for this member to ask for records when it rebalances. A member
            that does not ask for so long leaves the group.
        heartbeat_interval_ms: The interval of heartbeats to the coordinator.
        partition_assignment_strategy: The assignors that this member offers, first choice first: "lineage", "range",
            "roundrobin", "cooperative-sticky", or `PartitionAssignor` objects; a list, or names with commas. If all
            of them are cooperative, partitions that stay are read on during a rebalance (KIP-429).
        group_protocol: "classic", where a member assigns, or "consumer", where the broker does (KIP-848): no member
            waits for all others then. A cluster without such groups is met with "classic". The broker has its own
            session timeout (45 s) and interval of heartbeats then, and `session_timeout_ms` is not used.
        max_poll_records: The most records that `getmany` returns, unless its own argument says otherwise.
        fetch_max_wait_ms: How long a broker holds a request back while there is nothing new.
        request_timeout_ms: How long one request may take.
        metadata_max_age_ms: The age at which metadata is refreshed.
        ordered_delivery: False: no gates, as with Kafka's consumers; keys may overtake themselves after a resize.
        allow_auto_create_topics: Whether asking for a topic may create it, where brokers create topics by themselves.
        listener: Callbacks that move the application's own state along with its keys.
        audit: A topic to which every delivery is written, for `anabranch audit`. Needs a `group_id`.
        clock_ms: The time for the audit's timestamps, in milliseconds since 1970; the system's if None.
        rng: Where random choices come from.
        **security: TLS and login, by aiokafka's names: `security_protocol`, `ssl_cafile`, `ssl_certfile`,
            `ssl_keyfile`, `sasl_mechanism`, `sasl_plain_username`, `sasl_plain_password`; all of them are
            `SecurityArguments`.

    Raises:
        ValueError: A group without a topic, an unknown name among the settings, or an audit without a group.
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
        group_protocol: str = "classic",
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
        **security: Unpack[SecurityArguments],
    ) -> None:
        network = NetworkConfig(
            bootstrap_servers=parse_servers(bootstrap_servers),
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            security=make_security(type(self), **security),
        )
        config = ConsumerConfig(
            network=network,
            topics=topics,
            client_rack=client_rack,
            group_id=group_id,
            group_instance_id=group_instance_id,
            auto_offset_reset=auto_offset_reset,
            isolation_level=isolation_level,
            enable_auto_commit=enable_auto_commit,
            auto_commit_interval_ms=auto_commit_interval_ms,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            assignors=make_assignors(partition_assignment_strategy),
            group_protocol=group_protocol,
            max_poll_records=max_poll_records,
            fetch_max_wait_ms=fetch_max_wait_ms,
            ordered_delivery=ordered_delivery,
            allow_auto_create_topics=allow_auto_create_topics,
            audit=audit,
        )
        super().__init__(config, listener or PartitionKeyRebalanceListener(), clock_ms, make_rng(rng))
        self._max_poll_records = max_poll_records

    # records

    async def getmany(
        self, *, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the next records. Where commits are automatic, everything delivered before counts as processed.

        Args:
            timeout_ms: How long to wait while no record is deliverable; 0: not at all.
            max_records: How many at most; `max_poll_records` if None.

        Returns:
            Records by partition, in the order of their offsets; empty when the time is up.

        Raises:
            KafkaError: The group refuses this member for good (FENCED_INSTANCE_ID: another has its instance id), a
                topic is refused (once per answer), a record is damaged where it is stored (CORRUPT_MESSAGE: seek behind
                it), or `auto_offset_reset="none"` finds no offset (OFFSET_OUT_OF_RANGE).
            RuntimeError: The consumer was not started, or was stopped.
        """
        limit = self._max_poll_records if max_records is None else max_records
        self._check_started()
        taken = await self._polling.many(limit, timeout_ms)
        for records in taken.values():
            self._delivered += len(records)
            self._note(records)
        return taken

    async def getone(self, **unknown: Never) -> ConsumerRecord:
        """Return the next record, however long it takes.

        Raises:
            KafkaError: As from `getmany`.
            RuntimeError: The consumer was not started, or was stopped.
        """
        if unknown:
            refuse_unknown(Consumer.getone, unknown)
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
        """The partitions that this consumer reads; none before it has joined its group. Without a group, those of a
        topic that is missing now stay: it may be back.
        """
        return {progress.partition for progress in self._core.assignment}

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record to deliver; -1 while unknown.

        Raises:
            KeyError: The partition is not assigned to this consumer. So do the other methods that take a partition.
        """
        return self._core.assignment[partition].position

    def read_from(self, partition: TopicPartition) -> int:
        """Return the offset at which reading last began: by assignment, `seek` or `auto_offset_reset`; -1 while
        unknown.
        """
        return self._core.assignment[partition].read_from

    def highwater(self, partition: TopicPartition) -> int:
        """Return the high watermark as of the last fetch; -1 while unknown."""
        return self._core.assignment[partition].high_watermark

    def last_stable_offset(self, partition: TopicPartition) -> int:
        """Return the last stable offset as of the last fetch; -1 while unknown."""
        return self._core.assignment[partition].last_stable_offset

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at another offset, backwards or forwards; fetched records are dropped.

        Gates are evaluated afresh. Those of other members that have opened do not close again (K608): what is read a
        second time may come after newer records of its keys.

        Args:
            partition: One that is assigned.
            offset: That of the next record to deliver. If it is out of range, `auto_offset_reset` decides.

        Raises:
            KeyError: The partition is not assigned.
            ValueError: The offset is negative, or above 2^63 - 1; `seek_to_beginning` and `seek_to_end` find the ends
                of the log.
        """
        if not 0 <= offset <= OFFSET_MAX:
            what = "negative" if offset < 0 else "above 2^63 - 1"
            raise ValueError(f"an offset must not be {what}: {offset}; see seek_to_beginning and seek_to_end")
        self._core.seek(partition, offset)
        self._fetcher.poke()
        self._wakeup.set()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the log start offset.

        Args:
            partitions: Some that are assigned; none means all of them.

        Raises:
            KeyError: One is not assigned.
            TimeoutError: One has no leader for `request_timeout_ms`.
        """
        await self._seek_to(EARLIEST, partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue at the end of the log: the next record after the last deliverable one.

        Args:
            partitions: Some that are assigned; none means all of them.

        Raises:
            KeyError: One is not assigned.
            TimeoutError: One has no leader for `request_timeout_ms`.
        """
        await self._seek_to(LATEST, partitions)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offsets of these partitions.

        Args:
            partitions: Any, assigned or not.

        Returns:
            The offset of the first record that is stored, or will be.

        Raises:
            KafkaError: A topic is refused, or a merge has removed a partition (UNKNOWN_TOPIC_OR_PARTITION).
            TimeoutError: A partition has no leader for `request_timeout_ms`, or was never there.
        """
        return await self._offsets_at(dict.fromkeys(partitions, EARLIEST))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the current end offsets of these partitions.

        Args:
            partitions: Any, assigned or not.

        Returns:
            The high watermark; with "read_committed", where the oldest open transaction begins if that is before it.

        Raises:
            KafkaError: A topic is refused, or a merge has removed a partition (UNKNOWN_TOPIC_OR_PARTITION).
            TimeoutError: A partition has no leader for `request_timeout_ms`, or was never there.
        """
        return await self._offsets_at(dict.fromkeys(partitions, LATEST))

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Look up offsets by timestamp.

        Args:
            timestamps_ms: A time for each partition, in milliseconds since 1970.

        Returns:
            The first record of each partition that is as new; None where all are older.

        Raises:
            ValueError: A time is negative.
            KafkaError: A topic is refused, or a merge has removed a partition (UNKNOWN_TOPIC_OR_PARTITION).
            TimeoutError: A partition has no leader for `request_timeout_ms`, or was never there.
        """
        if any(timestamp_ms < 0 for timestamp_ms in timestamps_ms.values()):
            raise ValueError("a timestamp in ms must not be negative")
        return await self._find_offsets(timestamps_ms)

    def pause(self, *partitions: TopicPartition) -> None:
        """Deliver no records of these partitions until they are resumed or reassigned. Raises KeyError if one is not
        assigned.
        """
        for partition in partitions:
            self._core.assignment[partition].pause()

    def resume(self, *partitions: TopicPartition) -> None:
        """Resume paused partitions. A closed gate stays closed. Raises KeyError if one is not assigned."""
        for partition in partitions:
            self._core.assignment[partition].resume()
        self._fetcher.poke()
        self._wakeup.set()

    def key_epoch(self, partition: TopicPartition) -> tuple[Lineage, KeyEpoch] | None:
        """Return the current key epoch of a partition: the records between two changes of its keys.

        Returns:
            The topic's lineage and the key epoch of the next record to deliver; None in a topic without order, and
            while there is no position.

        Raises:
            KeyError: The partition is not assigned.
        """
        return self._core.deliveries.key_epoch(self._core.assignment[partition])

    def assigned_lineage(self, topic: str) -> Lineage | None:
        """Return a topic's lineage as of the current assignment; None in a topic without order."""
        known = self._network.metadata.topics.get(topic)
        made_from = self._core.assignment.generations.get(topic)
        if known is None or known.lineage is None or made_from is None or known.generation < made_from:
            return None
        return known.lineage.until(made_from)

    def lineage(self, topic: str) -> Lineage | None:
        """Return a topic's lineage from the current metadata; None in a topic without order."""
        gate = self._core.gates.gate(topic)
        return None if gate is None else gate.lineage

    def partitions_of(self, topic: str) -> Collection[int]:
        """Return a topic's partitions, including draining ones."""
        known = self._network.metadata.topics.get(topic)
        return () if known is None else known.partitions.keys()

    @property
    def rebalancing(self) -> bool:
        """Whether the group rebalances while this member keeps reading: a commit may be refused."""
        return self._core.ownership.joining

    def gates(self) -> list[GateView]:
        """Return every closed gate of this consumer, and the key epochs that it waits for."""
        return self._core.gates.views()

    def gate_openings(self) -> list[GateOpening]:
        """Return recently opened gates, with how long each was closed."""
        return list(self._core.gates.openings)

    def metrics(self) -> ConsumerMetrics:
        """Return the lag, the lag behind gates, and the times for which gates were closed."""
        return metrics_of(self._core, delivered=self._delivered, commits=self._session.commits if self._session else 0)

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit the group's offsets. Everything before them counts as processed.

        Where that reaches the end of a key epoch, `on_partition_key_maybe_revoked` runs first; the audit is stored in
        any case. Waits for a rebalance that is under way, for up to `request_timeout_ms`.

        Args:
            offsets: The offset of the next record to read, for each partition; the positions if None.

        Raises:
            KafkaError: The group went on without this member (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION), rebalances
                (REBALANCE_IN_PROGRESS), or does not answer (COORDINATOR_NOT_AVAILABLE). Nothing is committed then.
            ConnectionError: The coordinator went away before it answered. The offsets may be committed.
            TimeoutError: The coordinator did not answer in time. The offsets may be committed.
            RuntimeError: Some deliveries could not be written to the audit.
            TypeError: The offsets are not integers by `TopicPartition`.
            ValueError: The consumer has no group, or an offset is negative.
        """
        if self._joiner is None:
            raise ValueError("committing needs a group_id")
        offsets = None if offsets is None else checked_offsets(offsets)
        await self._joiner.wait_joined(timeout_ms=self._network_config.request_timeout_ms)
        await self.check_membership()
        await self._polling.commit(offsets)

    def enforce_rebalance(self) -> None:
        """Have the group reassign its partitions with the next request for records, although nothing has changed.

        Raises:
            ValueError: The consumer has no group.
        """
        if self._joiner is None:
            raise ValueError("rebalancing needs a group_id")
        self._joiner.want_rebalance()

    async def flush_audit(self) -> None:
        """Return when every delivery so far is stored in the audit; without an audit, at once.

        Commits do it by themselves: `commit`, automatic ones, and `send_offsets_to_transaction` with what
        `group_metadata` gave. An application that commits for the group in another way calls this before.

        Raises:
            RuntimeError: Some deliveries could not be written: the audit has a hole from now on.
        """
        await self._committer.flush_audit()

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the group's committed offset of a partition, assigned to this member or not.

        Waits while an open transaction may be about to commit one.

        Returns:
            The offset of the next record to read; None if the group has none.

        Raises:
            KafkaError: The group does not answer, or such a transaction stays open, for too long.
            ValueError: The consumer has no group.
        """
        if self._session is None:
            raise ValueError("committed offsets need a group_id")
        offset = await self._session.committed.when_stable(partition)
        return None if offset < 0 else offset

    async def stable(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Return which of these partitions have no pending transactional offset of the group.

        Raises:
            KafkaError: The group does not answer.
            ValueError: The consumer has no group.
        """
        if self._session is None:
            raise ValueError("committed offsets need a group_id")
        return (await self._session.committed.fetch(sorted(partitions))).keys()

    @property
    def generation(self) -> int:
        """Return the group's generation in which this member was last assigned partitions; -1 before, and without a
        group.

        The next owner of these partitions has a higher generation. So it is a fencing token for records that leave the
        consumer: read it when records are delivered, write it beside the results, and let the store refuse lower
        generations than its newest. Then a process that was stopped with a record overwrites nothing when it resumes
        (docs/clients.md, "Members that stop"). Only a consumer that replaces a static member may have the same
        generation.
        """
        return -1 if self._core.membership is None else self._core.membership.owner.generation_id

    async def check_membership(self) -> None:
        """Confirm that this member still owns its partitions at this moment: call it before an unfenced effect.

        Quick, unless the coordinator has not been heard of for so long that it has to be asked.

        Raises:
            KafkaError: The group went on without this member, or does not answer within `request_timeout_ms`.
            ValueError: The consumer has no group.
        """
        if self._session is None:
            raise ValueError("needs a group_id")
        await self._session.confirm_membership(timeout_s=self._network_config.request_timeout_ms / 1000)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this member's identity for `producer.send_offsets_to_transaction`: a later generation refuses it.

        Also when the membership has lapsed meanwhile: without a member and a generation the coordinator would refuse
        no commit. With an audit it carries the flush that has to come before the offsets (`flush_audit`).

        Raises:
            ValueError: The consumer has no group.
        """
        if self._core.membership is None:
            raise ValueError("needs a group_id")
        topic_ids = self._core.ownership.topic_ids(self.assignment())
        owner = self._core.membership.owner._replace(leader_epoch_of=self._leader_epoch, topic_ids=topic_ids)
        return owner if self._audit is None else owner._replace(before_commit=self._audit.flush)

    def _leader_epoch(self, topic: str, index: int) -> int:
        return self._network.metadata.leader_epoch(topic, index)

    # internals

    async def _seek_to(self, end: int, partitions: Collection[TopicPartition]) -> None:
        for partition, offset in (await self._offsets_at(dict.fromkeys(partitions or self.assignment(), end))).items():
            self.seek(partition, offset)
