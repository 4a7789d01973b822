from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from anabranch.broker.storage.log import LogSettings
from anabranch.broker.storage.log_append import append_as_follower
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.protocol.records.batch import iter_batches
from tests.broker.storage.batches import batch
from tests.broker.storage.logs import append, opened


class LogMachine(RuleBasedStateMachine):
    """A log against a list of (first offset, last offset, epoch), through appends, cuts, retention and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.settings = LogSettings(segment_bytes=600, index_interval_bytes=150)
        self.batches: list[tuple[int, int, int]] = []
        self.start = self.end = 0
        self.epoch = 0

    @initialize()
    def begin(self) -> None:
        self.log = opened(self.files, self.settings)

    @rule(records=st.integers(1, 5), size=st.integers(0, 90), new_epoch=st.booleans())
    def leader_appends(self, records: int, size: int, new_epoch: bool) -> None:
        self.epoch += new_epoch
        info = append(self.log, batch(records, value=bytes(size)), epoch=self.epoch)
        assert (info.first_offset, info.last_offset) == (self.end, self.end + records - 1)
        self.batches.append((info.first_offset, info.last_offset, self.epoch))
        self.end = info.last_offset + 1

    @rule(gap=st.integers(0, 5), records=st.integers(1, 3))
    def follower_appends(self, gap: int, records: int) -> None:
        first = self.end + gap
        append_as_follower(self.log, batch(records, at=(first, self.epoch)))
        self.batches.append((first, first + records - 1, self.epoch))
        self.end = first + records

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        target = data.draw(st.integers(self.start + 1, self.end))
        self.log.truncate_to(target)
        kept = [known for known in self.batches if known[1] < target]
        cut = self.batches[len(kept)] if len(kept) < len(self.batches) else None
        self.end = max(self.start, min(target, cut[0])) if cut else target
        self.batches = kept

    @rule(data=st.data())
    def move_start(self, data: st.DataObject) -> None:
        target = data.draw(st.integers(self.start, self.end))
        self.log.increment_log_start_offset(target)
        self.start = target
        self.batches = [known for known in self.batches if known[1] >= target]

    @rule()
    def restart(self) -> None:
        self.log = opened(self.files, self.settings, log_start_offset=self.start)
        # offsets behind the last batch (a truncation into a gap) are not remembered by anything on disk
        self.end = self.log.log_end_offset
        assert self.end >= (self.batches[-1][1] + 1 if self.batches else self.start)

    @invariant()
    def every_batch_is_there(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        seen: list[tuple[int, int, int]] = []
        offset = self.start
        while data := log.read(offset, 200):
            for _, header in iter_batches(data):
                seen.append((header.base_offset, header.last_offset, header.partition_leader_epoch))
            offset = seen[-1][1] + 1
        assert seen == self.batches

    @invariant()
    def epochs_fit_the_batches(self) -> None:
        for first, _, epoch in self.batches:
            if first >= self.start:
                assert self.log.epochs.epoch_for(first) == epoch


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLogMachine = LogMachine.TestCase
