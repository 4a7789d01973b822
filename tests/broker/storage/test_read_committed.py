"""Reads of committed records from a log and its copy, compared with a model of all transactions.

Transactions of several producers are interleaved with plain batches; the high watermark follows in steps, logs are
opened again, cut, handed over to the copy, and lose their beginning. The model knows of which transaction each record
is and how that was decided; a decision outlives the loss of its marker, as it does in a real coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from anabranch.broker.storage.log import LogSettings, PartitionLog
from anabranch.broker.storage.log_append import append_as_follower, append_as_leader
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.records.batch import Buffer, iter_batches
from anabranch.protocol.records.control import ControlType, build_end_transaction, read_control
from anabranch.protocol.records.record import iter_records
from tests.broker.storage.batches import NOW_MS, batch
from tests.broker.storage.logs import append

SEGMENTS = LogSettings(segment_bytes=700, index_interval_bytes=150)
STEPS = st.tuples(
    st.sampled_from(["plain", "records", "records", "records", "commit", "abort", "fence"]),
    st.integers(1, 3),
    st.integers(1, 3),
)
"""What happens, to which producer, with how many records."""


class Aborted(Protocol):
    """An aborted transaction in a log or response."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...


@dataclass(eq=False)
class Transaction:
    """One transaction of one producer; `commit` is None until it is decided."""

    producer_id: int
    first_offset: int
    commit: bool | None = None
    marker: int | None = None


@dataclass
class Written:
    """One record in the log; `transaction` None for plain ones."""

    offset: int
    value: bytes
    transaction: Transaction | None = None


@dataclass
class Producer:
    sequence: int = 0
    epoch: int = 0
    open: Transaction | None = None


@dataclass
class Reader:
    """A consumer that reads from the log's beginning to wherever it may."""

    position: int = 0
    got: list[tuple[int, bytes]] = field(default_factory=list)

    def poll(self, log: PartitionLog, high_watermark: int, max_bytes: int) -> bool:
        self.position = max(self.position, log.log_start_offset)
        limit = log.last_stable_offset(high_watermark)
        data = log.read(self.position, max_bytes, limit_offset=limit)
        before = self.position
        records, self.position = committed(data, log.producers.aborted_in(data, before), before)
        self.got += records
        return self.position > before


def committed(data: Buffer, aborted: Iterable[Aborted] | None, position: int) -> tuple[list[tuple[int, bytes]], int]:
    """What Kafka's consumers make of an answer: (offset, value) from a position on, and where they go on."""
    coming = sorted(aborted or (), key=lambda one: one.first_offset)
    dropping: set[int] = set()
    records: list[tuple[int, bytes]] = []
    following = position
    for start, header in iter_batches(data):
        while coming and coming[0].first_offset <= header.last_offset:
            dropping.add(coming.pop(0).producer_id)
        if header.is_control:
            if read_control(data, start).type is ControlType.ABORT:
                dropping.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropping):
            found = ((record.offset, record.value or b"") for record in iter_records(data, start))
            records += [(offset, value) for offset, value in found if offset >= position]
        following = max(following, header.next_offset)
    return records, following


class ReadCommittedMachine(RuleBasedStateMachine):
    """Leader and copy, four readers' worth of polls, and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.files = {"leader": MemoryFiles(), "copy": MemoryFiles()}
        self.written: list[Written] = []
        self.transactions: list[Transaction] = []
        self.producers: dict[int, Producer] = {}
        self.high_watermark = 0
        self.restored = False
        """Whether a log may have forgotten that a marker was not replicated yet."""

    @initialize()
    def begin(self) -> None:
        self.leader, self.copy = self.open("leader"), self.open("copy")
        self.readers = {"leader": Reader(), "copy": Reader()}

    def open(self, name: str, clean: bool = False, recovery_point: int = 0, start: int = 0) -> PartitionLog:
        return PartitionLog.open(
            self.files[name],
            "t-0",
            SEGMENTS,
            NOW_MS,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=start,
        )

    @property
    def end(self) -> int:
        return self.leader.log_end_offset

    # -- what producers and coordinators do

    @rule(steps=st.lists(STEPS, min_size=1, max_size=8), lag=st.integers(0, 4), max_bytes=st.integers(200, 2000))
    def write(self, steps: list[tuple[str, int, int]], lag: int, max_bytes: int) -> None:
        """Write batches and markers, and advance the copy and the high watermark."""
        for kind, producer_id, count in steps:
            match kind:
                case "plain":
                    self.plain(count)
                case "records":
                    self.transactional(producer_id, count)
                case _:
                    self.marker(producer_id, kind == "commit", bump=kind == "fence")
        self.replicate(max_bytes)
        self.high_watermark = max(self.high_watermark, self.copy.log_end_offset - lag)
        self.restored = self.restored and self.high_watermark < self.end

    def plain(self, count: int) -> None:
        self.add(append(self.leader, batch(count, value=b"plain")).first_offset, count, b"plain", None)

    def transactional(self, producer_id: int, count: int) -> None:
        producer = self.producers.setdefault(producer_id, Producer())
        if producer.open is not None and producer.open.commit is not None:
            return  # its marker has been cut off and will come again
        value = b"of %d" % producer_id
        records = batch(
            count, producer=(producer_id, producer.epoch, producer.sequence), transactional=True, value=value
        )
        first_offset = append(self.leader, records).first_offset
        producer.sequence += count
        if producer.open is None:
            producer.open = Transaction(producer_id, first_offset)
            self.transactions.append(producer.open)
        self.add(first_offset, count, value, producer.open)

    def marker(self, producer_id: int, commit: bool, *, bump: bool) -> None:
        producer = self.producers.setdefault(producer_id, Producer())
        transaction = producer.open
        if transaction is not None and transaction.commit is not None:
            commit = transaction.commit
        if bump and not commit:
            producer.epoch, producer.sequence = producer.epoch + 1, 0  # the producer timed out
        content = build_end_transaction(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=1,
            timestamp_ms=NOW_MS,
        )
        info = append_as_leader(self.leader, content, leader_epoch=1, now_ms=NOW_MS, origin="coordinator")
        if transaction is not None:
            transaction.commit, transaction.marker = commit, info.first_offset
            producer.open = None

    def add(self, first_offset: int, count: int, value: bytes, transaction: Transaction | None) -> None:
        self.written += [Written(first_offset + number, value, transaction) for number in range(count)]

    # -- what brokers do

    @rule(max_bytes=st.integers(100, 2000))
    def replicate(self, max_bytes: int) -> None:
        if self.copy.log_end_offset < self.leader.log_start_offset:
            self.copy.truncate_fully_and_start_at(self.leader.log_start_offset)
        append_as_follower(self.copy, bytes(self.leader.read(self.copy.log_end_offset, max_bytes)))

    @rule(clean=st.booleans(), which=st.sampled_from(["leader", "copy"]))
    def reopen(self, clean: bool, which: str) -> None:
        log = getattr(self, which)
        if clean:
            log.close()
        again = self.open(which, clean, log.recovery_point if clean else 0, log.log_start_offset)
        assert (again.log_start_offset, again.log_end_offset) == (log.log_start_offset, log.log_end_offset)
        setattr(self, which, again)
        self.restored = True
        self.meet_producers_again()

    @precondition(lambda self: self.copy.log_end_offset >= self.high_watermark)
    @rule()
    def fail_over(self) -> None:
        """The copy leads now; what it does not have is cut off from the other."""
        cut = self.copy.log_end_offset
        self.restored = self.leader.truncate_to(cut) or self.restored
        assert self.leader.log_end_offset == cut
        self.leader, self.copy = self.copy, self.leader
        self.files = {"leader": self.files["copy"], "copy": self.files["leader"]}
        self.readers = {"leader": self.readers["copy"], "copy": self.readers["leader"]}
        self.forget_from(cut)

    def forget_from(self, cut: int) -> None:
        self.written = [one for one in self.written if one.offset < cut]
        self.transactions = [one for one in self.transactions if one.first_offset < cut]
        for producer_id, producer in self.producers.items():
            mine = [one for one in self.transactions if one.producer_id == producer_id]
            producer.open = None
            if mine and (mine[-1].marker is None or mine[-1].marker >= cut):
                mine[-1].marker = None
                producer.open = mine[-1]
        self.meet_producers_again()

    def meet_producers_again(self) -> None:
        """What a log remembers of a producer may have been deleted with its records: then it gets a new epoch."""
        for producer_id, producer in self.producers.items():
            entry = self.leader.producers.get(producer_id)
            producer.epoch = max(producer.epoch, 0 if entry is None else entry.epoch)
            if entry is None or entry.epoch != producer.epoch:
                producer.epoch, producer.sequence = producer.epoch + 1, 0
            else:
                producer.sequence = entry.last_sequence + 1

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        start = data.draw(
            st.integers(self.leader.log_start_offset, max(self.leader.log_start_offset, self.high_watermark))
        )
        self.leader.increment_log_start_offset(start)
        if self.copy.log_start_offset <= start <= self.copy.log_end_offset:
            self.copy.increment_log_start_offset(start)

    # -- what readers see

    @rule(which=st.sampled_from(["leader", "copy"]), max_bytes=st.integers(1, 1500))
    def poll(self, which: str, max_bytes: int) -> None:
        log = getattr(self, which)
        if log.log_start_offset <= max(self.readers[which].position, log.log_start_offset) <= log.log_end_offset:
            self.readers[which].poll(log, min(self.high_watermark, log.log_end_offset), max_bytes)

    @invariant()
    def stable_offsets_lie_before_what_is_undecided(self) -> None:
        if not hasattr(self, "leader"):
            return
        for log in (self.leader, self.copy):
            high_watermark = min(self.high_watermark, log.log_end_offset)
            if high_watermark < log.log_start_offset:
                continue
            stable = log.last_stable_offset(high_watermark)
            started = [one for one in self.transactions if one.first_offset < log.log_end_offset]
            undecided = [one for one in started if one.marker is None or one.marker >= log.log_end_offset]
            unreplicated = [one for one in started if one.marker is not None and one.marker >= high_watermark]
            held = min([high_watermark, *(one.first_offset for one in undecided + unreplicated)])
            left = [one.offset for one in self.written if one.transaction in undecided]
            upper = min([high_watermark, *(offset for offset in left if offset >= log.log_start_offset)])
            assert stable <= upper, "past an open transaction"
            assert stable >= max(held, log.log_start_offset), "behind all that is undecided"
            # A log that was opened anew does not know which markers are not replicated yet, nor what was deleted.
            if not self.restored and held >= log.log_start_offset:
                assert stable == held, "past a marker that is not replicated"

    @invariant()
    def logs_know_each_aborted_transaction_once(self) -> None:
        if not hasattr(self, "leader"):
            return
        for log in (self.leader, self.copy):
            known = [(one.producer_id, one.last_offset) for one in log.producers.aborted]
            ended = [one for one in self.transactions if one.commit is False and one.marker is not None]
            expected = {
                (one.producer_id, one.marker)
                for one in ended
                if one.first_offset >= log.log_start_offset and (one.marker or 0) < log.log_end_offset
            }
            assert sorted(set(known), key=lambda one: one[1]) == known, "in the order of their markers"
            assert expected <= set(known) <= {(one.producer_id, one.marker) for one in ended}

    @invariant()
    def readers_have_exactly_what_was_committed(self) -> None:
        if not hasattr(self, "leader"):
            return
        for reader in self.readers.values():
            expected = [
                (one.offset, one.value)
                for one in self.written
                if one.offset < reader.position and (one.transaction is None or one.transaction.commit)
            ]
            skipped = {offset for offset, _ in expected} - {offset for offset, _ in reader.got}
            assert set(reader.got) <= set(expected), "aborted, undecided or unknown"
            assert reader.got == sorted(reader.got), "out of order, or twice"
            # What was deleted before the reader came there is not missing.
            assert all(offset < max(self.leader.log_start_offset, self.copy.log_start_offset) for offset in skipped)


TestReadCommitted = ReadCommittedMachine.TestCase
TestReadCommitted.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
