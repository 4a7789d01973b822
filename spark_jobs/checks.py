"""Checks one batch of deliveries and stored records against the state of their bucket.

Most deliveries are the next of their key, from the partition of the one before. A few operations on whole columns find
the keys with only such deliveries in a batch, and advance them; only the others are judged record by record (`rules`).
Rules beyond single keys are in `numbering` (repetitions and gaps of the audit itself) and `places` (owners and
repetitions of a partition); those of stored records in `pending`.

The results depend on the order of events in the audit topic alone, never on the borders of batches.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from anabranch.protocol.audit_mark import NO_PRODUCER
from anabranch.spark_jobs import lines
from anabranch.spark_jobs.bucket import LOSS_TIMEOUT_MS, NEVER_MS, NO_SENDER, QUIET_MS, Bucket
from anabranch.spark_jobs.columns import Column
from anabranch.spark_jobs.events import Events
from anabranch.spark_jobs.lines import PLACE, salt
from anabranch.spark_jobs.numbering import AGAIN, BEHIND
from anabranch.spark_jobs.pending import Stored
from anabranch.spark_jobs.places import Place
from anabranch.spark_jobs.rules import Line
from anabranch.spark_jobs.verdict import (
    DELIVERED,
    EVENTS,
    KINDS,
    REDELIVERED,
    REPEATED_EVENTS,
    UNNUMBERED,
    WRONG_PAYLOAD,
    Event,
    Violation,
)

SEQUENCES_END: Final = 1 << 62
"""No producer counts so far: a header with such a number is ignored."""
UNNUMBERED_SEQUENCE: Final = -1

Truths = npt.NDArray[np.bool_]


def check(bucket: Bucket, events: Events, stored: Stored | None = None, expect: str | None = None) -> list[Violation]:
    """Judge deliveries, in the order of the audit topic, and stored records of the topic `expect`.

    Changes the bucket. Returns the violations.
    """
    violations: list[Violation] = []
    if len(events):
        violations += _Batch(bucket, events, expect).judge()
    if stored is not None:
        bucket.pending.store(stored)
    violations += _compare_payloads(bucket)
    for violation in violations:
        if violation.event is not None:
            where = bucket.name_of(violation.group, violation.topic), violation.event.generation
            bucket.add(*where, violation.kind)
    return violations + bucket.settle()


def _compare_payloads(bucket: Bucket) -> list[Violation]:
    handed, found = bucket.pending.handed, []
    for row, fingerprint in bucket.pending.compare():
        columns = handed.columns
        event = bucket.event(
            int(columns["name"][row]),
            int(columns["producer"][row]),
            handed.keys[row],
            [int(columns[field][row]) for field in PLACE],
            int(columns["fingerprint"][row]),
        )
        found.append(Violation.of(WRONG_PAYLOAD, event, before=None, stored=fingerprint))
    return found


class _Batch:
    def __init__(self, bucket: Bucket, events: Events, expect: str | None) -> None:
        self._bucket = bucket
        self._events = events
        self._expect = expect
        senders = self._sender_indexes()
        names = np.array([bucket.name_of(one.group, one.topic) for one in events.senders], np.int64)
        self._name = names[events.sender]
        waits = bucket.pending
        self._audited = np.array(
            [
                topic == expect and (not waits.named or name in waits.groups)
                for name, (_, topic) in enumerate(bucket.names)
            ],
            np.bool_,
        )
        """Per index of the bucket's names: whether its deliveries are compared with stored records."""
        numbered = (events.producer != NO_PRODUCER) & (events.sequence < SEQUENCES_END)
        self._producer = np.where(numbered, events.producer, np.uint64(NO_PRODUCER))
        self._place: dict[str, Column] = {
            "newest": np.where(numbered, events.sequence.astype(np.int64), UNNUMBERED_SEQUENCE),
            "partition": events.partition,
            "generation": events.generation,
            "offset": events.offset,
            "time_ms": events.time_ms,
            "sender": senders[events.sender],
        }
        self._numbered = numbered
        self._again = np.zeros(len(events), np.bool_)
        self._key_ends: Column | None = None
        self._violations: list[Violation] = []

    def judge(self) -> list[Violation]:
        """Update the bucket. Returns the deliveries' violations."""
        bucket, events = self._bucket, self._events
        self._count(EVENTS, np.arange(len(events)))
        incarnations = np.array([one.incarnation for one in events.senders], np.uint64)[events.sender]
        known = bucket.numbers.admit(incarnations, events.number)
        self._count(REPEATED_EVENTS, np.flatnonzero(known == AGAIN))
        kept = np.flatnonzero(known != AGAIN)
        if not len(kept):
            return []
        clock = np.maximum(np.maximum.accumulate(events.time_ms), bucket.clock_ms)
        bucket.started_ms = min(bucket.started_ms, int(clock[0]))
        late = known == BEHIND
        self._judge_lines(kept, late, clock)
        self._judge_places(kept[~late[kept]])
        bucket.clock_ms = int(clock[-1])
        if self._expect is not None:
            self._hand(kept)
        return self._violations

    # partitions

    def _judge_places(self, rows: Column) -> None:
        """Judge the owners of partitions, and repetitions that end before the last position."""
        places, partition = self._bucket.places, self._place["partition"]
        if not len(rows):
            return
        where = self._name[rows] << 32 | partition[rows]
        order = np.argsort(where, kind="stable")
        for mine in np.split(rows[order], np.flatnonzero(np.diff(where[order])) + 1):
            place = places.setdefault((int(self._name[mine[0]]), int(partition[mine[0]])), Place())
            offset, sender = self._place["offset"][mine], self._place["sender"][mine]
            breaks = (offset[1:] <= offset[:-1]) | (sender[1:] != sender[:-1])
            for run in np.split(mine, np.flatnonzero(breaks) + 1):
                self._judge_run(place, run)

    def _judge_run(self, place: Place, run: Column) -> None:
        """Judge deliveries by one owner, from one partition, with rising offsets."""
        for row in run.tolist():
            event = self._event(row)
            if place.plain(event):
                place.extend(self._event(int(run[-1])), int(self._events.begin_number[run[-1]]))
                return
            self._violations += place.take(event, int(self._events.begin_number[row]), again=bool(self._again[row]))

    # keys

    def _judge_lines(self, kept: Column, late: Truths, clock: Column) -> None:
        first, second = self._hashes()
        order = kept[np.argsort(first[kept], kind="stable")]
        begins = np.flatnonzero(np.concatenate([[True], first[order][1:] != first[order][:-1]]))
        sizes = np.diff(np.append(begins, len(order)))
        heads, ends = order[begins], order[begins + sizes - 1]
        if (second[order] != np.repeat(second[heads], sizes)).any():
            raise lines.HashCollision("two keys of the audit have the same hash")
        rows = self._bucket.lines.find(first[heads], second[heads])
        self._name_woken(rows, heads)
        plain = self._plain(order, begins, sizes, rows, late, clock)
        self._count(DELIVERED, order[np.repeat(plain, sizes)])
        self._count(UNNUMBERED, order[~self._numbered[order]])
        careful = [
            (heads[number], rows[number], self._judge_line(rows[number], order[begin : begin + size], late, clock))
            for number, begin, size in zip(
                np.flatnonzero(~plain).tolist(), begins[~plain].tolist(), sizes[~plain].tolist(), strict=True
            )
        ]
        self._move_on(
            first,
            second,
            heads[plain],
            ends[plain],
            rows[plain],
            careful,
            clock[np.concatenate([ends[plain], ends[~plain]])],
        )

    def _plain(self, order: Column, begins: Column, sizes: Column, rows: Column, late: Truths, clock: Column) -> Truths:
        """Return which lines have only the next records of their key, from the last one's partition."""
        here = {name: column[order] for name, column in self._place.items()}
        before = {name: np.roll(here[name], 1) for name in ("newest", "partition", "generation", "offset")}
        known = np.maximum(rows, 0)
        for name, column in before.items():
            start = np.full(len(begins), -1) if name in ("newest", "offset") else here[name][begins]
            if len(self._bucket.lines):
                start = np.where(rows >= 0, self._bucket.lines.fields[name][known], start)
            column[begins] = start
        numbered = self._numbered[order]
        good = np.where(numbered, here["newest"] == before["newest"] + 1, here["generation"] >= before["generation"])
        good &= (here["partition"] == before["partition"]) & (here["offset"] > before["offset"]) & ~late[order]
        previous_ms = np.roll(clock[order], 1)
        previous_ms[begins] = clock[order][begins]
        if len(self._bucket.lines):
            previous_ms[begins] = np.where(rows >= 0, self._bucket.lines.fields["heard_ms"][known], previous_ms[begins])
        good &= clock[order] - previous_ms <= self._bucket.forget_ms
        plain: Truths = np.logical_and.reduceat(good, begins)
        return plain

    def _judge_line(self, row: int, events: Column, late: Truths, clock: Column) -> Line:
        bucket, line = self._bucket, self._line(int(row))
        last_ms = int(bucket.lines.fields["heard_ms"][row]) if row >= 0 else NEVER_MS
        for number in events.tolist():
            now_ms, newest = int(clock[number]), line.newest
            # Whether the state has forgotten the line yet depends on the borders of batches.
            gone = now_ms - last_ms > bucket.forget_ms
            last_ms = now_ms
            if gone and (not line.skipped or not self._audited[self._name[number]]):
                self._violations += bucket.give_up(line)
                bucket.keys += int(self._numbered[number])
                line, newest = Line(), None
            elif newest is not None and not line.skipped and now_ms - newest.time_ms > QUIET_MS:
                line.newest = newest._replace(
                    time_ms=-1,
                    member=NO_SENDER.member,
                    incarnation=NO_SENDER.incarnation,
                    group_generation=NO_SENDER.group_generation,
                )
            event = self._event(number)
            if newest is None and now_ms - bucket.started_ms > bucket.forget_ms:
                line.began = max(0, event.sequence)
            finding = line.judge(event, late=bool(late[number]), clock_ms=now_ms, timeout_ms=LOSS_TIMEOUT_MS)
            self._violations += finding.violations
            self._again[number] = REDELIVERED in finding.counts
            for kind in finding.counts:
                if kind not in KINDS:
                    bucket.add(int(self._name[number]), event.generation, kind)
        return line

    def _line(self, row: int) -> Line:
        if row < 0:
            return Line()
        bucket, state = self._bucket, self._bucket.lines
        first = int(state.first[row])
        fields = {name: int(state.fields[name][row]) for name in (*PLACE, "name", "producer")}
        newest = bucket.event(fields["name"], fields["producer"], state.key(row), [fields[name] for name in PLACE])
        former: dict[int, int] = dict(state.former.get(first))  # type: ignore[arg-type]
        former[newest.partition] = max(newest.offset, former.get(newest.partition, -1))
        began = sum(one for (one,) in state.began.get(first))
        return Line(newest, former, [bucket.skip(first, one) for one in state.skipped.get(first)], began)

    def _move_on(
        self,
        first: Column,
        second: Column,
        heads: Column,
        ends: Column,
        rows: Column,
        careful: list[tuple[int, int, Line]],
        previous_ms: Column,
    ) -> None:
        """Store the newest delivery of every line and its time: plain lines by their ends, others as judged."""
        bucket, state = self._bucket, self._bucket.lines
        for head, _, line in careful:
            assert line.newest is not None, "something was delivered"
            former = [row for row in line.former.items() if row != (line.newest.partition, line.newest.offset)]
            if former or state.former.get(int(first[head])):
                state.former.put(int(first[head]), former)
        places = np.array([bucket.place(line.newest) for _, _, line in careful if line.newest], np.int64)
        places = places.reshape(-1, len(PLACE))
        heads = np.concatenate([heads, np.array([head for head, _, _ in careful], np.int64)])
        rows = np.concatenate([rows, np.array([row for _, row, _ in careful], np.int64)])
        values = {name: np.concatenate([self._place[name][ends], places[:, index]]) for index, name in enumerate(PLACE)}
        values["heard_ms"] = previous_ms
        old, new = rows >= 0, rows < 0
        state.update(rows[old], {name: column[old] for name, column in values.items()})
        if new.any():
            its = heads[new]
            fresh = {name: column[new] for name, column in values.items()}
            fresh |= {"name": self._name[its], "producer": self._producer[its]}
            state.add(first[its], second[its], fresh, [self._key(row) for row in its.tolist()])
            bucket.keys += int(self._numbered[its].sum())
        for head, _, line in careful:
            its_first = int(first[head])
            if line.began or state.began.get(its_first):
                state.began.put(its_first, [(line.began,)] if line.began else [])
            if line.skipped or state.skipped.get(its_first):
                state.skipped.put(its_first, [bucket.flat(skip) for skip in line.skipped])

    def _name_woken(self, rows: Column, heads: Column) -> None:
        """Restore the names of quiet lines, which the state has dropped."""
        state = self._bucket.lines
        known = rows >= 0
        woken = np.flatnonzero(known)[state.fields["name"][rows[known]] < 0]
        if len(woken):
            its = heads[woken]
            keys = [self._key(row) for row in its.tolist()]
            state.name_again(rows[woken], self._name[its], self._producer[its], keys)

    def _hashes(self) -> tuple[Column, Column]:
        bucket, events = self._bucket, self._events
        of_names = np.array([salt(*names, 0) for names in bucket.names], np.uint64)
        salts = of_names[self._name] + self._producer * np.uint64(3)
        blank = ~self._numbered & (events.key_lengths < 0)
        salts[blank] += events.partition[blank].astype(np.uint64) + np.uint64(1)
        return lines.hashes(events.key_column(), salts)

    # columns

    def _sender_indexes(self) -> Column:
        known = self._bucket.senders
        places = {sender: index for index, sender in enumerate(known)}
        for sender in self._events.senders:
            if sender not in places:
                places[sender] = len(known)
                known.append(sender)
        return np.array([places[sender] for sender in self._events.senders], np.int64)

    def _count(self, kind: str, rows: Column) -> None:
        generation = self._place["generation"][rows]
        where, counts = np.unique(self._name[rows] << 32 | (generation + 1), return_counts=True)
        for key, count in zip(where.tolist(), counts.tolist(), strict=True):
            self._bucket.add(key >> 32, (key & 0xFFFFFFFF) - 1, kind, count)

    def _key(self, row: int) -> bytes | None:
        if self._key_ends is None:
            self._key_ends = np.cumsum(np.maximum(self._events.key_lengths, 0))
        length = int(self._events.key_lengths[row])
        end = int(self._key_ends[row])
        return None if length < 0 else self._events.key_bytes[end - length : end]

    def _event(self, row: int) -> Event:
        place = [int(self._place[name][row]) for name in PLACE]
        fingerprint = int(self._events.fingerprint[row])
        return self._bucket.event(int(self._name[row]), int(self._producer[row]), self._key(row), place, fingerprint)

    def _hand(self, kept: Column) -> None:
        """Pass on deliveries of the audited topic."""
        bucket, pending = self._bucket, self._bucket.pending
        rows = kept[self._audited[self._name[kept]]]
        for name in np.unique(self._name[rows]).tolist():
            bucket.check_in_time(*bucket.names[name])
        if len(rows):
            columns = {name: column[rows] for name, column in self._place.items()}
            columns |= {"name": self._name[rows], "producer": self._producer[rows]}
            columns |= {"fingerprint": self._events.fingerprint[rows]}
            pending.hand(columns, [self._key(row) for row in rows.tolist()])
