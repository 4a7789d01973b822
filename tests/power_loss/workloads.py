"""Workloads of `tests.power_loss`: random actions on the log of a partition, as a broker performs them.

Each workload is a seed. It opens what it needs as a node does, and after each action it notes what must survive from
there on (`Fact`). `recover` opens the files that a power failure left, by the same code, and judges them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from anabranch.broker.config.broker_settings import BrokerSettings, TopicConfig
from anabranch.broker.node.meta_properties import claim_directories
from anabranch.broker.replication.log_moves import copy_piece
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.log_append import append_as_follower, append_as_leader
from anabranch.broker.storage.log_manager import LogManager
from anabranch.broker.storage.os_files import OsFiles
from anabranch.protocol.records.control import build_end_transaction
from tests.broker.storage.batches import batch
from tests.power_loss.expected import Expected, judge
from tests.power_loss.recording import Recorder

TOPIC: Final = "t"
TOPIC_ID: Final = bytes(range(1, 17))
NOW_MS: Final = 1_700_000_000_000
KEYS: Final = 6


@dataclass(frozen=True)
class Profile:
    """A workload: the weights of its actions, and how logs are configured."""

    actions: dict[str, int]
    flush_messages: int = 1
    compacted: bool = False
    steps: int = 45


COMMON: Final = {"append": 30, "new epoch": 3, "checkpoint": 3, "flush step": 3}
PROFILES: Final[dict[str, Profile]] = {
    "appends, each flushed": Profile({**COMMON}),
    "appends, flushed in the background": Profile({**COMMON, "flush step": 8, "flush": 2}, 1 << 60),
    "transactions": Profile({**COMMON, "transaction": 40}),
    "truncations": Profile(
        {**COMMON, "truncate": 5, "refetch": 4, "start anew": 4, "delete records": 3, "checkpoint": 6}
    ),
    "truncations, flushed in the background": Profile(
        {**COMMON, "truncate": 5, "refetch": 4, "start anew": 1, "flush step": 8, "flush": 2, "transaction": 10},
        1 << 60,
    ),
    "retention and deleted records": Profile({**COMMON, "retain": 6, "delete records": 6, "transaction": 8}),
    "compaction": Profile({**COMMON, "compact": 8, "transaction": 15, "flush step": 8}, 1 << 60, compacted=True),
    "clean stops and kills": Profile({**COMMON, "stop": 4, "kill": 4, "transaction": 15, "truncate": 2}, 1 << 60),
    "moves between directories": Profile({**COMMON, "move": 5, "transaction": 6, "truncate": 1, "delete records": 3}),
    "partitions that are removed and made again": Profile(
        {**COMMON, "make again": 6, "stop": 1, "delete records": 8, "checkpoint": 8}, steps=60
    ),
    "everything": Profile(
        {
            **COMMON,
            **dict.fromkeys(("truncate", "retain", "delete records", "stop", "kill", "move", "make again"), 2),
            "transaction": 15,
            "flush": 2,
        },
        4,
        steps=80,
    ),
}


@dataclass(frozen=True)
class Fact:
    """What is expected of the files from an operation on."""

    operations: int
    expected: Any


def log_manager(root: Path, profile: Profile) -> LogManager:
    """Open the directories of a node, as its start does."""
    files = {}
    for name in ("d0", "d1"):
        files[name] = OsFiles(root / name)
    claim_directories(files, 1, "cluster")
    config = TopicConfig(
        segment_bytes=1500,
        index_interval_bytes=300,
        retention_bytes=3000,
        retention_ms=-1,
        flush_messages=profile.flush_messages,
        cleanup_policy="compact" if profile.compacted else "delete",
        file_delete_delay_ms=0,
    )
    logs = LogManager(files, BrokerSettings(), lambda _: config, lambda: NOW_MS)
    logs.load_checkpoints()
    return logs


def close_files(logs: LogManager) -> None:
    """Give the descriptors back."""
    for directory in logs.directories:
        assert isinstance(directory.files, OsFiles)
        directory.files.close()


@dataclass
class LogWorkload:
    """Random actions on one partition."""

    root: Path
    profile: Profile
    rng: random.Random
    recorder: Recorder
    facts: list[Fact] = field(default_factory=list)
    epoch: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    transactions: dict[int, int] = field(default_factory=dict)

    def run(self) -> None:
        """Perform all actions."""
        self.expected = Expected(compacted=self.profile.compacted)
        self.logs = log_manager(self.root, self.profile)
        self.open()
        self.note()
        names, weights = list(self.profile.actions), list(self.profile.actions.values())
        for _ in range(self.profile.steps):
            name = self.rng.choices(names, weights)[0]
            action: Callable[[], None] = getattr(self, f"do_{name.replace(' ', '_')}")
            action()
            self.note()
        close_files(self.logs)

    def open(self) -> None:
        self.log: PartitionLog = self.logs.open(TOPIC, 0, TOPIC_ID)

    def note(self) -> None:
        """An action is over."""
        flushed = max(min(self.expected.flushed, self.log.log_end_offset), self.log.recovery_point)
        self.expected = replace(self.expected, flushed=flushed, start=self.log.log_start_offset)
        self.facts.append(Fact(len(self.recorder.operations), self.expected))

    # ------------------------------------------------------------------------------------------------------ actions

    def do_append(self) -> None:
        producer = self.rng.choice((-1, 1, 2))
        self._append(producer, transactional=False)

    def _append(self, producer: int, *, transactional: bool) -> None:
        count = self.rng.randint(1, 3)
        sequence = self.sequences.get(producer, 0)
        records = batch(
            count,
            producer=(producer, 0, sequence) if producer > 0 else (-1, -1, -1),
            key=b"%d" % self.rng.randrange(KEYS),
            value=b"%d" % self.rng.getrandbits(32) * self.rng.randint(1, 20),
            transactional=transactional,
            timestamp_ms=NOW_MS + len(self.facts),
        )
        offset = self.log.log_end_offset
        append_as_leader(self.log, records, leader_epoch=self.epoch, now_ms=NOW_MS)
        if producer > 0:
            self.sequences[producer] = sequence + count
        self.expected = self.expected.appended(self.log, offset)

    def do_transaction(self) -> None:
        producer = self.rng.choice((3, 4))
        if producer in self.transactions and self.rng.random() < 0.5:
            self._end(producer)
        else:
            self.transactions[producer] = 0
            self._append(producer, transactional=True)

    def _end(self, producer: int) -> None:
        del self.transactions[producer]
        marker = build_end_transaction(
            commit=self.rng.random() < 0.3,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=1,
            timestamp_ms=NOW_MS,
        )
        offset = self.log.log_end_offset
        append_as_leader(self.log, marker, leader_epoch=self.epoch, now_ms=NOW_MS, origin="coordinator")
        self.expected = self.expected.appended(self.log, offset)

    def do_new_epoch(self) -> None:
        self.epoch += 1

    def do_checkpoint(self) -> None:
        self.logs.checkpoint([(TOPIC, 0, self.expected.flushed)])

    def do_flush_step(self) -> None:
        self.logs.flush_step()

    def do_flush(self) -> None:
        self.log.flush()

    def do_truncate(self) -> None:
        """A new leader's log ended earlier."""
        bases = [one.base for one in self.expected.batches if one.base >= self.log.log_start_offset]
        if not bases:
            return
        end = self.rng.choice(bases[-6:])
        self.log.truncate_to(end)
        self._rewind(self.expected.cut(end))

    def do_refetch(self) -> None:
        """A new leader's log has other batches from an offset on, of an earlier epoch than the present ones."""
        self.do_truncate()
        self.note()
        epoch = self.log.epochs.latest_epoch
        for _ in range(self.rng.randint(1, 3) if epoch >= 0 else 0):
            offset = self.log.log_end_offset
            append_as_follower(self.log, batch(2, value=b"%d" % self.rng.getrandbits(32), at=(offset, epoch)))
            self.expected = self.expected.appended(self.log, offset)
            self.note()

    def do_start_anew(self) -> None:
        """The leader's log starts behind, or diverges before, this one."""
        offset = self.rng.randrange(self.log.log_end_offset + 5)
        self.log.truncate_fully_and_start_at(offset)
        self._rewind(Expected(start=offset, compacted=self.profile.compacted))

    def _rewind(self, expected: Expected) -> None:
        self.expected = expected
        self.epoch += 1
        self.sequences, self.transactions = {}, {}
        for entry in self.log.producers.entries:
            self.sequences[entry.producer_id] = entry.last_sequence + 1
            if entry.transaction_start >= 0:
                self.transactions[entry.producer_id] = 0

    def do_delete_records(self) -> None:
        self.log.increment_log_start_offset(self.rng.randint(self.log.log_start_offset, self.log.log_end_offset))

    def do_retain(self) -> None:
        self.log.apply_retention(NOW_MS)

    def do_compact(self) -> None:
        end = self.log.log_end_offset
        for _ in range(200):
            if not self.logs.clean_step(lambda _: end):
                return

    def do_stop(self) -> None:
        self.logs.close()
        self.expected = replace(self.expected, flushed=self.log.log_end_offset)
        self._start()

    def do_kill(self) -> None:
        self._start()

    def _start(self) -> None:
        close_files(self.logs)
        self.logs = log_manager(self.root, self.profile)
        self.open()

    def do_move(self) -> None:
        here = self.logs.home((TOPIC, 0)).path
        future = self.logs.begin_future(TOPIC, 0, "d1" if here == "d0" else "d0")
        while not copy_piece(self.log, future):
            self.note()
        self.note()
        self.log = self.logs.promote_future(TOPIC, 0)

    def do_make_again(self) -> None:
        """A merge removes the partition, and a split makes it again, with the same topic id."""
        self.logs.delete(TOPIC, 0)  # may come back after a power failure, until there is a new one
        self.open()
        self._rewind(Expected(compacted=self.profile.compacted))

    def recover(self, root: Path, before: Expected, after: Expected) -> str:
        """Start a node on what is left, and use it; return what is wrong, or ""."""
        logs = log_manager(root, self.profile)
        log = logs.open(TOPIC, 0, TOPIC_ID)
        fault = judge(log, before, after)
        if fault:
            return fault
        logs.future(TOPIC, 0)
        return _continues(root, self.profile, logs, log)


def _continues(root: Path, profile: Profile, logs: LogManager, log: PartitionLog) -> str:
    epoch = max(log.epochs.latest_epoch, 0) + 1
    info = append_as_leader(log, batch(), leader_epoch=epoch, now_ms=NOW_MS)
    end, start = log.log_end_offset, log.log_start_offset
    states = {one.producer_id: (one.epoch, one.last_sequence, one.transaction_start) for one in log.producers.entries}
    aborted = list(log.producers.aborted)
    logs.close()
    close_files(logs)
    logs = log_manager(root, profile)
    log = logs.open(TOPIC, 0, TOPIC_ID)
    again = {one.producer_id: (one.epoch, one.last_sequence, one.transaction_start) for one in log.producers.entries}
    known = log.producers.aborted
    if profile.compacted:  # a scan finds those of their records that compaction has left
        known, aborted = ([(one.producer_id, one.last_offset) for one in ones] for ones in (known, aborted))
    if (log.log_start_offset, log.log_end_offset, again, known) != (start, end, states, aborted):
        return (
            f"another log after a clean stop: {log.log_start_offset}..{log.log_end_offset} instead of {start}..{end}, "
            f"{again} instead of {states}, {log.producers.aborted} instead of {aborted}"
        )
    if not log.read(info.first_offset, 1000):
        return "nothing where it was appended"
    close_files(logs)
    return ""
