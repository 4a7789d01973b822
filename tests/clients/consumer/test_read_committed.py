"""Only records of committed transactions are delivered.

Method: random logs of interleaved transactions of three producers, some of them reusing their id at once, are read in
pieces that begin and end anywhere; each piece comes with the aborted transactions that a leader would send along.
"""

from __future__ import annotations

import random

from anabranch.clients.consumer.progress import PartitionProgress
from anabranch.protocol.apis.fetch import AbortedTransaction
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.control import build_end_transaction
from anabranch.protocol.topic_partition import TopicPartition
from tests.cases import for_each
from tests.protocol.stored_batch import stored_at

Aborted = tuple[int, int, int]
"""(producer id, first offset, offset of the marker)"""


class Log:
    """Batches as a leader stores them, and what a reader of committed records should see of them."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        self.end = 0
        self.committed: list[int] = []
        self.aborted: list[Aborted] = []
        self._open: dict[int, list[int]] = {}

    def data(self, producer_id: int, count: int, *, transactional: bool) -> None:
        builder = BatchBuilder()
        for _ in range(count):
            builder.append(None, b"v", (), 0)
        offsets = list(range(self.end, self.end + count))
        if transactional:
            self._open.setdefault(producer_id, []).extend(offsets)
        else:
            self.committed += offsets
        self._append(builder.build(producer_id, 0, 0, transactional), count)

    def marker(self, producer_id: int, *, commit: bool) -> None:
        offsets = self._open.pop(producer_id, [])
        if commit:
            self.committed += offsets
        elif offsets:
            self.aborted.append((producer_id, offsets[0], self.end))
        data = build_end_transaction(
            commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
        )
        self._append(data, 1)

    def _append(self, data: bytes, count: int) -> None:
        self.batches.append((self.end, self.end + count, stored_at(data, self.end)))
        self.end += count

    def fetch(self, offset: int, batches: int) -> tuple[bytes, list[AbortedTransaction]]:
        """Return whole batches from the one with `offset`, and the leader's list of aborted transactions."""
        rows = [row for row in self.batches if row[1] > offset][:batches]
        upper = rows[-1][1] if rows else offset
        aborted = [
            AbortedTransaction(producer_id=producer_id, first_offset=first)
            for producer_id, first, last in self.aborted
            if last >= offset and first < upper
        ]
        return b"".join(data for _, _, data in rows), aborted


def random_log(rng: random.Random) -> Log:
    log = Log()
    for _ in range(rng.randrange(1, 40)):
        producer_id = rng.randrange(1, 4)
        if rng.random() < 0.6:
            # Producer 3 has no transactions; its batches stand between those of the others.
            log.data(producer_id, rng.randrange(1, 4), transactional=producer_id != 3)
        elif producer_id != 3:
            log.marker(producer_id, commit=rng.random() < 0.5)
    for producer_id in (1, 2):
        log.marker(producer_id, commit=rng.random() < 0.5)
    return log


@for_each(range(300))
def test_read_committed_delivers_all_committed_records_and_no_others(seed: int) -> None:
    rng = random.Random(seed)
    log = random_log(rng)
    start = rng.randrange(log.end) if rng.random() < 0.5 else 0
    progress = PartitionProgress(TopicPartition("t", 0))
    progress.begin(start)
    seen: list[int] = []
    while progress.position < log.end:
        data, aborted = log.fetch(progress.fetch_offset, rng.randrange(1, 6))
        rng.shuffle(aborted)
        progress.receive(data, progress.fetch_offset, aborted)
        while progress.buffered:
            seen += [record.offset for record in progress.take(rng.randrange(1, 5))]
    assert seen == sorted(offset for offset in log.committed if offset >= start)
    assert progress.position == log.end, "markers and aborted records are passed"


def test_without_list_of_aborted_transactions_all_records_are_delivered() -> None:
    log = Log()
    log.data(1, 2, transactional=True)
    log.marker(1, commit=False)
    progress = PartitionProgress(TopicPartition("t", 0))
    progress.begin(0)
    progress.receive(log.fetch(0, 9)[0], 0)
    assert [record.offset for record in progress.take(9)] == [0, 1]
    assert progress.take(9) == []
    assert progress.position == 3
