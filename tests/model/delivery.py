"""A consumer group on logs of a resized topic: allowed deliveries (I4, I12; rules R7, R9-R11).

The logs are given: every way to spread a few records of one or two keys over the generations, as a producer that keeps
I3 leaves them. Each partition has an owner that reads, commits, crashes and starts again at what it had committed. What
varies beside that: a tail of the log that only the old leader has, until it is replicated or lost; and transactions,
whose markers arrive late, at any place of the lineage.

With the repaired rules the gate of the model is held against the product's own `clients.consumer.gate` in every state.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from anabranch.clients.consumer.gate import PartitionView, TopicGate
from anabranch.protocol import linear_hashing
from anabranch.protocol.lineage import KeyEpoch, Lineage
from tests.model.explorer import Forbidden, Process, Steps
from tests.model.packing import replaced

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Rules:
    """The repaired design; every other value is the published text, one of its readings, or a tempting shortcut."""

    waits_for: Literal["committed", "position"] = "committed"
    recursive: bool = True
    """A key epoch is done only if it was open itself."""
    gate: Literal["always", "published"] = "always"
    """The published text asks only where a new partition starts, and at thresholds of marked retiring partitions."""
    retiring_of: Literal["any ancestor", "the current ancestor"] = "any ancestor"
    """Two readings of the published section 8.5.1: which retiring partitions a merge target waits for."""
    reports: Literal["always", "published"] = "always"
    """When an owner tells its position: the published text has a list of conditions."""
    reports_reset: bool = True
    """The conditions start over when the coordinator or the owner changes."""
    positions_forgotten: bool = True
    """The coordinator forgets the position of an owner that crashed."""
    commits_while_gated: bool = False
    """Owners commit positions of partitions that were never opened, as automatic commits do."""
    end: Literal["log end", "last stable"] = "log end"
    """What a boundary is taken from."""
    resolved_again: bool = True
    """A boundary is asked for again after its leader changed."""


class Entry(NamedTuple):
    """One place of a log. A marker ends its transaction's part in this partition."""

    generation: int
    record: int
    key: int = 0
    transaction: int = UNKNOWN
    marker: bool = False


@dataclass(frozen=True, slots=True)
class Logs:
    """What the group reads: the entries of each partition, how many only its old leader has, and aborted ones."""

    entries: tuple[tuple[Entry, ...], ...]
    tails: tuple[int, ...]
    aborted: frozenset[int] = field(default_factory=frozenset)


class State(NamedTuple):
    """Everything that decides what may happen next, per partition."""

    lengths: tuple[int, ...]
    replicated: tuple[int, ...]
    positions: tuple[int, ...]
    committed: tuple[int, ...]
    reported: tuple[int, ...]
    opened: tuple[bool, ...]
    last_reports: tuple[tuple[int, int] | None, ...]
    ends: tuple[int, ...]
    """Where each key epoch that has a next one ends, so far as it was asked for."""
    crashes: int
    coordinator_failovers: int


class Delivery:
    """The model; see the docstring of the module."""

    row_fields = "lengths", "replicated", "positions", "committed", "reported", "opened", "last_reports", "ends"
    fault_fields = "crashes", "coordinator_failovers"

    def __init__(
        self,
        lineage: Lineage,
        logs: Logs,
        rules: Rules | None = None,
        *,
        crashes: int = 0,
        coordinator_failovers: int = 0,
    ) -> None:
        self.lineage, self.logs, self.rules = lineage, logs, rules or Rules()
        self.partitions = range(len(logs.entries))
        self.counts = [count for _, count in lineage.history]
        self.crashes, self.coordinator_failovers = crashes, coordinator_failovers
        self.key_epochs = {p: lineage.key_epochs(p) for p in self.partitions}
        every = [one for key_epochs in self.key_epochs.values() for one in key_epochs]
        self.before = {one: (lineage.previous(one), lineage.predecessors(one)) for one in every}
        self.cut = [one for one in every if lineage.next(one) is not None]
        self.place = {one: place for place, one in enumerate(self.cut)}
        self.ends_move = any(logs.tails) or self.rules.end == "last stable"
        """Otherwise it makes no difference when a boundary is asked for: it is known from the start."""
        self.ends_at_start = tuple(
            UNKNOWN if self.ends_move else _end(logs.entries[one.partition], one) for one in self.cut
        )

    def initial(self) -> State:
        """Nothing was read; of each log what comes before its first marker is there."""
        lengths = tuple(self._until_marker(p, 0) for p in self.partitions)
        return State(
            lengths=lengths,
            replicated=tuple(length - tail for length, tail in zip(lengths, self.logs.tails, strict=True)),
            positions=(0,) * len(lengths),
            committed=(UNKNOWN,) * len(lengths),
            reported=(UNKNOWN,) * len(lengths),
            opened=(False,) * len(lengths),
            last_reports=(None,) * len(lengths),
            ends=self.ends_at_start,
            crashes=self.crashes,
            coordinator_failovers=self.coordinator_failovers,
        )

    def finished(self, state: State) -> bool:
        """Every log is complete and has been read to its end."""
        complete = all(
            length == len(entries) or tail
            for length, entries, tail in zip(state.lengths, self.logs.entries, self.logs.tails, strict=True)
        )
        return complete and state.replicated == state.lengths == state.positions

    def violation(self, state: State) -> str | None:
        """The product's gate must agree with the model's, where the model has the repaired rules."""
        if self.rules != Rules():
            return None
        gate = self._product_gate(state)
        for p in self.partitions:
            for key_epoch in self.key_epochs[p]:
                if gate.is_open(key_epoch) != self._is_open(state, key_epoch, p):
                    return f"gates disagree: about {key_epoch} the product says {gate.is_open(key_epoch)}"
        return None

    def processes(self) -> list[Process[State]]:
        """All who do something."""
        each = self._deliver, self._tell, self._crash, self._log
        owners = [functools.partial(act, p) for p in self.partitions for act in each]
        return [*owners, self._boundaries, self._coordinator]

    # -- what may happen

    def _coordinator(self, state: State) -> Steps[State]:
        if state.coordinator_failovers:
            yield (
                "the coordinator fails over",
                state._replace(
                    reported=(UNKNOWN,) * len(self.partitions),
                    last_reports=(None,) * len(self.partitions) if self.rules.reports_reset else state.last_reports,
                    coordinator_failovers=state.coordinator_failovers - 1,
                ),
            )

    def _deliver(self, p: int, state: State) -> Steps[State]:
        offset = state.positions[p]
        if offset >= self._readable(state, p) or not self._may_read(state, p):
            return
        entry = self.logs.entries[p][offset]
        handed_out = not entry.marker and entry.transaction not in self.logs.aborted
        action = f"deliver #{entry.record} from p{p}" if handed_out else f"skip {offset} of p{p}"
        if handed_out:
            self._check_order(state, p, entry, action)
        yield (
            action,
            state._replace(positions=replaced(state.positions, p, offset + 1), opened=replaced(state.opened, p, True)),
        )

    def _check_order(self, state: State, p: int, entry: Entry, action: str) -> None:
        """I4: no later record of this key may have been delivered from another partition."""
        for q in self.partitions:
            for other in self.logs.entries[q][: state.positions[q] if q != p else 0]:
                passed = not other.marker and other.transaction not in self.logs.aborted
                if passed and other.key == entry.key and other.record > entry.record:
                    raise Forbidden(action, f"I4: #{entry.record} of p{p} after #{other.record} of p{q}")

    def _tell(self, p: int, state: State) -> Steps[State]:
        position = state.positions[p]
        first = self.key_epochs[p][0]
        may = self.rules.commits_while_gated or position > 0 or self._is_open(state, first, p)
        if may and state.committed[p] != position:
            yield f"commit p{p}={position}", state._replace(committed=replaced(state.committed, p, position))
        if self.rules.waits_for != "position" or state.reported[p] == position:
            return
        reached = self.logs.entries[p][position - 1].generation if position else UNKNOWN
        last = state.last_reports[p]
        if self.rules.reports == "published" and last is not None:
            caught_up = position > last[0] and position == len(self.logs.entries[p])
            if not caught_up and reached <= last[1]:
                return
        yield (
            f"report p{p}={position}",
            state._replace(
                reported=replaced(state.reported, p, position),
                last_reports=replaced(state.last_reports, p, (position, reached))
                if self.rules.reports == "published"
                else state.last_reports,
            ),
        )

    def _crash(self, p: int, state: State) -> Steps[State]:
        if not state.crashes:
            return
        again = max(state.committed[p], 0)
        reported = replaced(state.reported, p, UNKNOWN) if self.rules.positions_forgotten else state.reported
        yield (
            f"the owner of p{p} crashes, and starts at {again}",
            state._replace(
                positions=replaced(state.positions, p, again),
                reported=reported,
                opened=replaced(state.opened, p, False),
                last_reports=replaced(state.last_reports, p, None),
                crashes=state.crashes - 1,
            ),
        )

    def _log(self, p: int, state: State) -> Steps[State]:
        length, replicated = state.lengths[p], state.replicated[p]
        if length < len(self.logs.entries[p]) and replicated == length and not self.logs.tails[p]:
            longer = self._until_marker(p, length + 1)
            grown = state._replace(lengths=replaced(state.lengths, p, longer))
            yield f"p{p} takes a marker", grown._replace(replicated=replaced(state.replicated, p, longer))
        if replicated < length:
            yield f"followers of p{p} catch up", state._replace(replicated=replaced(state.replicated, p, length))
            kept = tuple(UNKNOWN if one.partition == p else end for one, end in zip(self.cut, state.ends, strict=True))
            lost = state._replace(lengths=replaced(state.lengths, p, replicated))
            told = f"p{p} fails over and loses {length - replicated}"
            yield told, lost._replace(ends=kept) if self.rules.resolved_again else lost

    def _boundaries(self, state: State) -> Steps[State]:
        for place, key_epoch in enumerate(self.cut):
            if state.ends[place] == UNKNOWN:
                end = self._end(state, key_epoch)
                yield f"{key_epoch} is said to end at {end}", state._replace(ends=replaced(state.ends, place, end))

    # -- gates

    def _may_read(self, state: State, p: int) -> bool:
        if self.rules.gate == "published":
            return self._published_gate(state, p)
        entry = self.logs.entries[p][state.positions[p]]
        return self._is_open(state, KeyEpoch(p, entry.generation), p)

    def _is_open(self, state: State, key_epoch: KeyEpoch, reader: int) -> bool:
        before, sources = self.before[key_epoch]
        if before is not None and self.rules.recursive and not self._is_open(state, before, reader):
            return False
        return all(self._is_done(state, source, reader) for source in sources)

    def _is_done(self, state: State, key_epoch: KeyEpoch, reader: int) -> bool:
        p = key_epoch.partition
        place = self.place.get(key_epoch)
        end = UNKNOWN if place is None else state.ends[place]
        if p != reader and (end == UNKNOWN or self._heard(state, p) < end):
            return False
        return not self.rules.recursive or self._is_open(state, key_epoch, reader)

    def _heard(self, state: State, p: int) -> int:
        return (state.committed if self.rules.waits_for == "committed" else state.reported)[p]

    def _passed(self, state: State, key_epoch: KeyEpoch) -> bool:
        heard = self._heard(state, key_epoch.partition)
        return heard != UNKNOWN and heard >= self._end(state, key_epoch)

    def _published_gate(self, state: State, p: int) -> bool:
        """Sections 8.4 and 8.5 as published: at the start of a new partition, and per marked retiring partition."""
        offset = state.positions[p]
        generation = self.logs.entries[p][offset].generation
        births = [s for s in self.lineage.key_epochs(p) if p < self.lineage.count_at(s.generation)]
        births = [s for s in births if s.generation and p >= self.lineage.count_at(s.generation - 1)]
        born = [s for s in births if s.generation <= generation]
        waits = True
        if born and not state.opened[p] and state.committed[p] <= 0:
            waits = all(self._passed(state, source) for source in self.lineage.predecessors(born[-1]))
        for resize in range(1, len(self.counts)):
            for retiring in range(self.counts[resize], self.counts[resize - 1]):
                if self._published_waits_for(p, retiring, resize) and offset >= self._held_until(p, resize):
                    waits = waits and self._passed(state, self._sealed(retiring, resize))
        return waits

    def _published_waits_for(self, p: int, retiring: int, resize: int) -> bool:
        chain = [retiring]
        while chain[-1] > 0:
            chain.append(linear_hashing.parent(chain[-1], self.lineage.base))
        if self.rules.retiring_of == "any ancestor":
            return p in chain[1:] and p < self.counts[resize]
        return p == next(one for one in chain if one < self.counts[-1])

    def _held_until(self, p: int, resize: int) -> int:
        return sum(entry.generation < resize for entry in self.logs.entries[p])

    def _sealed(self, retiring: int, resize: int) -> KeyEpoch:
        return KeyEpoch(retiring, self.lineage.class_generation(retiring, resize - 1))

    def _product_gate(self, state: State) -> TopicGate:
        views = {p: PartitionView(self.lineage.generation, self._starts(p)) for p in self.partitions}
        gate = TopicGate(self.lineage, views)
        for key_epoch, end in zip(self.cut, state.ends, strict=True):
            if end != UNKNOWN:
                gate.note_end(key_epoch, end, leader_epoch=self.lineage.generation)
        for p in self.partitions:
            if state.committed[p] != UNKNOWN:
                gate.note_committed(p, state.committed[p])
        return gate

    def _starts(self, p: int) -> tuple[tuple[int, int], ...]:
        return tuple((generation, generation) for generation in self.lineage.class_generations(p))

    # -- logs

    def _until_marker(self, p: int, start: int) -> int:
        entries = self.logs.entries[p]
        return next((place for place in range(start, len(entries)) if entries[place].marker), len(entries))

    def _readable(self, state: State, p: int) -> int:
        visible = self.logs.entries[p][: state.lengths[p]]
        ended = {entry.transaction for entry in visible if entry.marker}
        open_at = (
            place
            for place, entry in enumerate(visible)
            if entry.transaction != UNKNOWN and entry.transaction not in ended
        )
        return min(state.replicated[p], next(open_at, len(visible)))

    def _end(self, state: State, key_epoch: KeyEpoch) -> int:
        visible = self.logs.entries[key_epoch.partition][: state.lengths[key_epoch.partition]]
        end = _end(visible, key_epoch)
        return end if self.rules.end == "log end" else min(end, self._readable(state, key_epoch.partition))


def _end(entries: tuple[Entry, ...], key_epoch: KeyEpoch) -> int:
    return sum(entry.generation <= key_epoch.generation for entry in entries)


def spread(lineage: Lineage, hashes: tuple[int, ...], records: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Every way to produce this many records: ((generation, key hash) of each, in order)."""
    generations = [generation for generation, _ in lineage.history]
    for chosen in itertools.combinations_with_replacement(generations, records):
        for keys in itertools.product(hashes, repeat=records):
            yield tuple(zip(chosen, keys, strict=True))


def logs_of(lineage: Lineage, produced: tuple[tuple[int, int], ...]) -> Logs:
    """The logs that a producer leaves who keeps the order of every key."""
    return Logs(tuple(map(tuple, _placed(lineage, produced))), (0,) * _width(lineage))


def with_tail(logs: Logs, p: int, tail: int) -> Logs:
    """The same logs, the last entries of one partition known to its old leader only."""
    return replace(logs, tails=replaced(logs.tails, p, tail))


def in_transactions(lineage: Lineage, produced: tuple[tuple[int, int], ...], *, aborted: frozenset[int]) -> Logs:
    """All records in one transaction (number 0, aborted or not); markers come in the last generation."""
    placed = _placed(lineage, produced, transaction=0)
    for p, entries in enumerate(placed):
        if entries:
            entries.append(Entry(lineage.class_generation(p), UNKNOWN, transaction=0, marker=True))
    return Logs(tuple(map(tuple, placed)), (0,) * _width(lineage), aborted)


def _placed(
    lineage: Lineage, produced: tuple[tuple[int, int], ...], *, transaction: int = UNKNOWN
) -> list[list[Entry]]:
    placed: list[list[Entry]] = [[] for _ in range(_width(lineage))]
    for record, (generation, key_hash) in enumerate(produced):
        then = Lineage(lineage.base, [step for step in lineage.history if step[0] <= generation])
        p = then.address(key_hash)
        placed[p].append(Entry(then.class_generation(p), record, key_hash, transaction))
    return placed


def _width(lineage: Lineage) -> int:
    return max(count for _, count in lineage.history)
