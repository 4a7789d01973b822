"""What a log may hold after a power failure: the oracle of `tests.power_loss`.

An `Expected` is the log after one action: all batches of its timeline, where it starts, and how far it is flushed. When
the power fails during an action, the log may be the one before it or the one after it, up to any offset that is not
below what was flushed; nothing else. `judge` also compares epochs, producers and aborted transactions, which it derives
from the batches alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.producer_state import NO_OFFSET
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.records.batch import BatchHeader, check_crc, iter_batches
from anabranch.protocol.records.control import ControlType, read_control
from anabranch.protocol.records.record import iter_records


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as it is stored."""

    header: BatchHeader
    data: bytes

    @property
    def base(self) -> int:
        """Its first offset."""
        return self.header.base_offset


@dataclass(frozen=True, slots=True)
class Expected:
    """A log after an action."""

    batches: tuple[Batch, ...] = ()
    """All of the timeline, deleted and compacted ones, too."""
    start: int = 0
    flushed: int = 0
    """Everything below this offset has to survive."""
    compacted: bool = False

    def appended(self, log: PartitionLog, offset: int) -> Expected:
        """The log after an append at an offset."""
        data = bytes(log.read(offset, 1 << 20))
        added = [Batch(header, data[at : at + header.size_bytes]) for at, header in iter_batches(data)]
        return replace(self, batches=(*self.batches, *added))

    def cut(self, end: int) -> Expected:
        """The log after a truncation to an offset."""
        kept = tuple(one for one in self.batches if one.header.next_offset <= end)
        return replace(self, batches=kept, flushed=min(self.flushed, end))


def judge(log: PartitionLog, before: Expected, after: Expected) -> str:
    """Return what is wrong with a log that was opened after a power failure between two actions; "" if nothing is."""
    floor = min(before.flushed, after.flushed)
    if not log.size_bytes and all(one.header.next_offset <= after.start for one in after.batches):
        return ""  # the log is being emptied; where it begins is not on the disk before its new file
    if log.log_end_offset < floor:
        return f"lost: it ends at {log.log_end_offset}, and was flushed to {floor}"
    if log.log_start_offset > max(before.start, after.start) < floor:
        return f"lost: it starts at {log.log_start_offset}, not at {before.start} or {after.start}"
    try:
        found = list(_stored(log))
    except KafkaError as damage:
        return f"unreadable: {damage}"
    faults = [_against(log, found, one, floor) for one in (after, before)]
    return "" if "" in faults else faults[0] if after == before else f"{faults[0]}; or {faults[1]}"


def _stored(log: PartitionLog) -> Iterator[Batch]:
    """All batches that readers may get."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, 4096))
        if not data:
            return
        for at, header in iter_batches(data):
            assert check_crc(data, at, header), "a batch with a wrong checksum was read"
            yield Batch(header, data[at : at + header.size_bytes])
            offset = header.next_offset


def _against(log: PartitionLog, found: list[Batch], expected: Expected, floor: int) -> str:
    """Compare a log with one of the two that it may be."""
    return (
        (_against_records(log, found, expected, floor) if expected.compacted else _contents(log, found, expected))
        or _epochs(log, found, expected)
        or _producers(log, found, expected)
        or _aborted(log, found, expected)
    )


def _contents(log: PartitionLog, found: list[Batch], expected: Expected) -> str:
    known = {one.base: one for one in expected.batches}
    next_offset = max(log.log_start_offset, 0)
    for number, one in enumerate(found):
        if one.base not in known or known[one.base].data != one.data:
            return f"a batch at {one.base} of epoch {one.header.partition_leader_epoch} that is not this log's"
        if one.base > next_offset and (number or one.base > expected.start):
            return f"a gap from {next_offset} to {one.base}"
        next_offset = one.header.next_offset
    if next_offset != log.log_end_offset:
        return f"a gap from {next_offset} to the end {log.log_end_offset}"
    return ""


def _against_records(log: PartitionLog, found: list[Batch], expected: Expected, floor: int) -> str:
    """A compacted log may lack a record if a later one of its key is there, or if its transaction was aborted, even if
    the marker is lost: a coordinator writes it again.
    """
    aborted = _aborted_in(expected, expected.batches[-1].header.next_offset if expected.batches else 0)
    written: dict[int, tuple[bytes | None, bytes | None]] = {}
    newest: dict[bytes | None, int] = {}
    for one in expected.batches:
        if one.header.is_control or one.header.next_offset > log.log_end_offset:
            continue
        gone = one.header.is_transactional and any(
            pid == one.header.producer_id and first <= one.base < last for pid, first, last in aborted
        )
        for record in iter_records(one.data):
            written[record.offset] = (record.key, record.value)
            if not gone:
                newest[record.key] = record.offset
    have = {}
    for one in found:
        if one.header.is_control:
            continue
        for record in iter_records(one.data):
            have[record.offset] = (record.key, record.value)
            if written.get(record.offset) != have[record.offset]:
                return f"a record at {record.offset} that is not this log's"
    for key, offset in newest.items():
        if max(expected.start, log.log_start_offset) <= offset < floor and offset not in have:
            return f"the newest record of the key {key!r}, at {offset}, is missing"
    return ""


def _epochs(log: PartitionLog, found: list[Batch], expected: Expected) -> str:
    for one in found:
        known, epoch = log.epochs.epoch_for(max(one.base, log.log_start_offset)), one.header.partition_leader_epoch
        if known != epoch:
            return f"epoch {known} for the offset {one.base} of epoch {epoch}"
    begins: dict[int, int] = {}
    for one in expected.batches:
        begins.setdefault(one.header.partition_leader_epoch, one.base)
    for entry in log.epochs.entries:
        begin = begins.get(entry.epoch)
        if begin is None or not (
            entry.start_offset == begin
            or begin < entry.start_offset <= max(log.log_start_offset, expected.start)
            or (expected.compacted and entry.start_offset > begin)
        ):
            return f"the epoch {entry.epoch} starts at {entry.start_offset} instead of {begin}"
    return ""


def _producers(log: PartitionLog, found: list[Batch], expected: Expected) -> str:
    """Compare the last sequence and the open transaction of each producer."""
    last: dict[int, tuple[int, int]] = {}
    opened: dict[int, int] = {}
    for one in expected.batches:
        header = one.header
        if header.producer_id < 0 or header.next_offset > log.log_end_offset:
            continue
        if header.is_control:
            opened.pop(header.producer_id, None)
        else:
            last[header.producer_id] = header.producer_epoch, header.last_sequence
            if header.is_transactional:
                opened.setdefault(header.producer_id, one.base)
    known = {one.producer_id: one for one in log.producers.entries}
    for producer_id, entry in known.items():
        if producer_id not in last:
            return f"a producer {producer_id} that this log does not know"
        if entry.batches and (entry.epoch, entry.last_sequence) != last[producer_id]:
            return f"producer {producer_id} at {entry.epoch}, {entry.last_sequence} instead of {last[producer_id]}"
        start = opened.get(producer_id, NO_OFFSET)
        if entry.transaction_start != start and not _is_rest(
            log, expected, producer_id, start, entry.transaction_start
        ):
            return f"producer {producer_id} has a transaction at {entry.transaction_start} instead of {start}"
    seen = {one.header.producer_id for one in found if one.header.producer_id >= 0 and not one.header.is_control}
    missing = seen - set(known)
    return f"the producers {sorted(missing)} are unknown" if missing else ""


def _is_rest(log: PartitionLog, expected: Expected, producer_id: int, start: int, known: int) -> bool:
    """Whether a transaction is known from its first record that is not deleted, or compacted, on."""
    skipped = [
        one.base for one in expected.batches if one.header.producer_id == producer_id and start <= one.base < known
    ]
    first = max(log.log_start_offset, expected.start)
    return NO_OFFSET < start < known and (expected.compacted or all(base < first for base in skipped))


def _aborted_in(expected: Expected, end: int) -> list[tuple[int, int, int]]:
    """Producer, first offset and marker of each aborted transaction below an offset."""
    opened: dict[int, int] = {}
    aborted = []
    for one in expected.batches:
        header = one.header
        if header.next_offset > end:
            break
        if header.is_control:
            first = opened.pop(header.producer_id, None)
            control = read_control(one.data)
            if control is not None and control.type is ControlType.ABORT and first is not None:
                aborted.append((header.producer_id, first, one.base))
        elif header.is_transactional:
            opened.setdefault(header.producer_id, one.base)
    return aborted


def _aborted(log: PartitionLog, found: list[Batch], expected: Expected) -> str:
    """Each aborted transaction with a record in the log has to be known as aborted."""
    wanted = {(pid, marker): first for pid, first, marker in _aborted_in(expected, log.log_end_offset)}
    known = {(one.producer_id, one.last_offset): one.first_offset for one in log.producers.aborted}
    strange = set(known) - set(wanted)
    if strange:
        return f"aborted transactions that this log does not have: {sorted(strange)}"
    for (producer_id, marker), first in wanted.items():
        inside = [
            one.base
            for one in found
            if one.header.producer_id == producer_id and not one.header.is_control and first <= one.base < marker
        ]
        if inside and known.get((producer_id, marker), marker) > min(inside):
            return f"the aborted transaction of producer {producer_id} from {first} to {marker} passes for committed"
    return ""
