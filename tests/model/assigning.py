"""A group of stock members whose gates the broker holds by its assignments (I4, I12; rules R9, R11, R20).

The logs are given, as in `delivery`, and so is the lineage, of which the coordinator may hear late. A member reads what
it was assigned, to its end, whatever key epoch that belongs to, and commits behind what it was handed. Members crash,
and go on as zombies; static ones leave and return; commits are written before they are stable; coordinators change; a
member seeks back and commits that; groups begin before the resizes, or long after.

A *unit* is what can be assigned: a partition; with `merges="views"` a part of one, because then what a merge target
takes after a merge has a number of its own to such members. With the design's rules the gates of the model are held
against the product's function (`protocol.order_gates`) in every state.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal, NamedTuple

from anabranch.protocol import order_gates
from anabranch.protocol.lineage import KeyEpoch, Lineage
from tests.model.delivery import Entry, Logs
from tests.model.explorer import Forbidden, Process, Steps
from tests.model.packing import replaced

UNKNOWN = -1
NOBODY = -1


@dataclass(frozen=True, slots=True)
class Rules:
    """The design; every other value takes one of its rules away."""

    merges: Literal["read on", "withheld", "views"] = "read on"
    """What they get of a merge target: its log, nothing until the retiring partitions are read, or numbered parts."""
    recursive: bool = True
    starts: bool = True
    """The coordinator commits the start of each child for a group with a commit on its parent, before it assigns it."""
    end: Literal["deliverable", "cut"] = "deliverable"
    """What has to be committed: the last record that can be delivered, or all offsets below the cut."""
    expired_is_done: bool = True
    """A log that begins behind the cut has nothing left to wait for."""
    uncommitted: Literal["wait", "pass"] = "wait"
    """A group without a commit on the parent is waited for; "pass" is the escape, and its price."""
    stable: bool = True
    """Only commits that a coordinator cannot lose count."""
    again: bool = True
    """Gates are computed from commits at each look; else one that has been open stays open."""
    lineage_first: bool = True
    """No coordinator knows a partition before it knows its lineage."""
    outsiders_refused: bool = True
    """A group with members takes commits of nobody else: neither of zombies nor of tools."""
    stored_filtered: bool = True
    """What a static member finds when it returns is looked at again."""
    counts: Literal["handed out", "processed"] = "handed out"
    """What the order is asked of."""
    commits: Literal["handed out", "processed"] = "handed out"
    """What members commit: automatic commits of some clients have the record in hand."""


class Faults(NamedTuple):
    """How often each may happen."""

    crashes: int = 0
    failovers: int = 0
    leaves: int = 0
    rewinds: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Who reads."""

    begins: Literal["before", "late"] = "before"
    """Before the resizes, with a commit in the first partitions, or after them, without any."""
    reset: Literal["earliest", "latest"] = "latest"
    commits_resets: bool = False
    """Whether members commit where their reset policy lets them begin (Java does), or only behind records."""


class State(NamedTuple):
    """Everything that decides what may happen next; tuples are per unit."""

    informed: bool
    noted: bool
    committed: tuple[int, ...]
    written: tuple[int, ...]
    readers: tuple[int, ...]
    handed: tuple[bool, ...]
    """Whether the reader has something that it could commit."""
    in_hand: tuple[bool, ...]
    zombies: tuple[int, ...]
    away: tuple[bool, ...]
    been_open: tuple[bool, ...]
    counted_from: tuple[int, ...]
    """From which offset on deliveries count: those of before a rewind do not."""
    faults: Faults


class Assigning:
    """The model: see the module's text."""

    row_fields = "written", "readers", "handed", "in_hand", "zombies", "away", "been_open", "counted_from"
    fault_fields = ("faults",)

    def __init__(
        self,
        lineage: Lineage,
        logs: Logs,
        rules: Rules | None = None,
        *,
        group: Group | None = None,
        faults: Faults | None = None,
        starts: tuple[int, ...] = (),
        committed: tuple[int, ...] = (),
    ) -> None:
        self.lineage, self.logs = lineage, logs
        self.rules, self.group, self.faults = rules or Rules(), group or Group(), faults or Faults()
        # What the logs decide is asked for in every state.
        self.cut, self.end = functools.cache(self._cut), functools.cache(self._end)
        self.begin, self.entries = functools.cache(self._begin), functools.cache(self._entries)
        self.is_open = functools.cache(self._is_open)
        width = range(len(logs.entries))
        self.starts = starts or (0,) * len(logs.entries)
        self.units = [unit for p in width for unit in self._split(p)]
        self.unit_of = {key_epoch: place for place, unit in enumerate(self.units) for key_epoch in unit}
        known = committed or (UNKNOWN,) * len(logs.entries)
        at_first = lineage.history[0][1]
        self.committed_at_first = tuple(
            self.begin(u) if self.group.begins == "before" and self._is_root(u, at_first) else known[unit[0].partition]
            for u, unit in enumerate(self.units)
        )

    def initial(self) -> State:
        """No reader yet, and the coordinator does not know the resizes."""
        many = len(self.units)
        return State(
            informed=False,
            noted=False,
            committed=self.committed_at_first,
            written=(UNKNOWN,) * many,
            readers=(NOBODY,) * many,
            handed=(False,) * many,
            in_hand=(False,) * many,
            zombies=(NOBODY,) * many,
            away=(False,) * many,
            been_open=(False,) * many,
            counted_from=tuple(self.begin(u) for u in range(many)),
            faults=self.faults,
        )

    def finished(self, state: State) -> bool:
        """Every record that can be delivered has been, to members that are there."""
        return all(
            state.readers[u] != NOBODY and self._next(u, state.readers[u]) is None and not state.in_hand[u]
            for u in range(len(self.units))
            if self._next(u, self.begin(u)) is not None
        )

    def violation(self, state: State) -> str | None:
        """The product's function must agree with the model's gates, where the model has the design's rules."""
        if self.rules != Rules():
            return None
        for unit in self.units:
            for key_epoch in unit:
                found = list(
                    order_gates.waits(
                        self.lineage,
                        key_epoch,
                        there=range(len(self.logs.entries)),
                        end=self.end,
                        committed=state.committed.__getitem__,
                        start=self.starts.__getitem__,
                    )
                )
                if (not found) != self.is_open(state.committed, key_epoch):
                    return f"gates disagree: the product says that {key_epoch} waits for {found}"
        return None

    def processes(self) -> list[Process[State]]:
        """All who do something."""
        each = self._assign, self._read, self._commit, self._fail
        units = [functools.partial(act, u) for u in range(len(self.units)) for act in each]
        return [self._hear, *units, self._fail_over]

    # -- the coordinator

    def _hear(self, state: State) -> Steps[State]:
        if not state.informed:
            yield "the coordinator hears of the resizes", state._replace(informed=True)
        if state.informed and not state.noted:
            yield "it commits where children begin", self._take_note(state)

    def _fail_over(self, state: State) -> Steps[State]:
        if state.faults.failovers:
            yield (
                "the coordinator fails over",
                state._replace(
                    informed=False,
                    noted=False,
                    written=(UNKNOWN,) * len(self.units),
                    faults=state.faults._replace(failovers=state.faults.failovers - 1),
                ),
            )

    def _take_note(self, state: State) -> State:
        """R20 by the coordinator: children of partitions with a commit get the log start as commit."""
        committed = list(state.committed)
        for generation, _ in self.lineage.history[1:]:
            for u, unit in enumerate(self.units):
                sources = self.lineage.predecessors(unit[0]) if unit[0].generation == generation else ()
                gets = self.rules.starts and any(committed[self.unit_of[one]] != UNKNOWN for one in sources)
                if gets and committed[u] < self.begin(u):
                    committed[u] = self.begin(u)
        return state._replace(noted=True, committed=tuple(committed))

    def _assign(self, u: int, state: State) -> Steps[State]:
        name = self._name(u)
        if state.readers[u] != NOBODY:
            if not self._assignable(state, u):
                yield f"{name} is taken away", self._gone(state, u)
            return
        # Positions are asked for when no commit is on its way: a lost one would be ahead of its reader for ever.
        if self.rules.stable and state.written[u] != UNKNOWN:
            return
        if state.away[u]:
            gets = self._assignable(state, u) or not self.rules.stored_filtered
            back = state._replace(away=replaced(state.away, u, False))
            yield f"the static member of {name} returns", self._given(back, u) if gets else back
        elif self._assignable(state, u):
            yield f"{name} is assigned", self._given(state, u)

    def _assignable(self, state: State, u: int) -> bool:
        first = self.units[u][0]
        if not state.informed:  # only what was there at first is known to the coordinator
            return not self.rules.lineage_first or self._is_root(u, self.lineage.history[0][1])
        if not state.noted and self.rules.starts:
            return self._is_root(u, self.lineage.history[0][1])
        if state.been_open[u] and not self.rules.again:
            return True
        heard = state.committed if self.rules.stable else tuple(map(max, state.committed, state.written))
        if self.rules.merges == "withheld":
            return all(self.is_open(heard, key_epoch) for key_epoch in self.units[u])
        if self.rules.merges == "views":
            return self.is_open(heard, first)
        position = max(state.committed[u], self.begin(u))
        closed = order_gates.next_closed(
            self.lineage,
            first.partition,
            position,
            is_open=lambda key_epoch: self.is_open(heard, key_epoch),
            cut=self.cut,
        )
        return closed is None

    def _given(self, state: State, u: int) -> State:
        offset = state.committed[u]
        fresh = offset < self.begin(u)
        if fresh:
            offset = self.begin(u) if self.group.reset == "earliest" else self.cut(self.units[u][-1])
            if self.group.begins == "before" and self._next(u, self.begin(u), offset) is not None:
                raise Forbidden(f"{self._name(u)} is assigned", f"lost: {self._name(u)} is begun at its end")
        given = state._replace(
            readers=replaced(state.readers, u, offset),
            handed=replaced(state.handed, u, fresh and self.group.commits_resets),
            been_open=replaced(state.been_open, u, True),
        )
        if state.counted_from[u] != FOR_LATER:
            return given
        return given._replace(counted_from=replaced(given.counted_from, u, offset))

    def _gone(self, state: State, u: int) -> State:
        return state._replace(
            readers=replaced(state.readers, u, NOBODY),
            handed=replaced(state.handed, u, False),
            in_hand=replaced(state.in_hand, u, False),
        )

    # -- members

    def _read(self, u: int, state: State) -> Steps[State]:
        position = state.readers[u]
        if state.in_hand[u]:
            yield f"{self._name(u)}: processed", state._replace(in_hand=replaced(state.in_hand, u, False))
            return
        at = None if position == NOBODY else self._next(u, position)
        if at is None:
            return
        entry = self.entries(u)[at]
        action = f"deliver #{entry.record} from {self._name(u)}"
        self._check_order(state, u, at, entry, action)
        in_hand = self.rules.counts == "processed"
        yield (
            action,
            state._replace(
                readers=replaced(state.readers, u, at + 1),
                handed=replaced(state.handed, u, True),
                in_hand=replaced(state.in_hand, u, in_hand),
            ),
        )

    def _check_order(self, state: State, u: int, at: int, entry: Entry, action: str) -> None:
        """I4: no later record of this key is delivered, and no earlier one is undelivered in a reader."""
        for other, reader in enumerate(state.readers):
            if other == u:
                continue
            passed = reader if reader != NOBODY else max(state.committed[other], 0)
            for offset, one in enumerate(self.entries(other)):
                if offset >= passed or one.marker or one.key != entry.key or offset < self.begin(other):
                    continue
                if one.record > entry.record and offset >= state.counted_from[other]:
                    raise Forbidden(action, f"I4: #{entry.record} after #{one.record} of {self._name(other)}")
                if one.record < entry.record and state.in_hand[other] and offset == passed - 1:
                    raise Forbidden(action, f"I4: #{entry.record} while #{one.record} is in hand")

    def _commit(self, u: int, state: State) -> Steps[State]:
        held = state.in_hand[u] and self.rules.commits == "processed"
        offset = state.readers[u]
        if offset != NOBODY and state.handed[u] and not held and max(state.committed[u], state.written[u]) < offset:
            yield f"commit {self._name(u)}={offset}", state._replace(written=replaced(state.written, u, offset))
        if state.written[u] != UNKNOWN:
            stable = state._replace(
                committed=replaced(state.committed, u, max(state.written[u], state.committed[u])),
                written=replaced(state.written, u, UNKNOWN),
            )
            yield f"{self._name(u)}={state.written[u]} is stable", stable
        if not self.rules.outsiders_refused:
            zombie = state.zombies[u]
            if zombie > state.committed[u]:
                yield (
                    f"a zombie commits {self._name(u)}={zombie}",
                    state._replace(committed=replaced(state.committed, u, zombie)),
                )

    def _fail(self, u: int, state: State) -> Steps[State]:
        faults, position, name = state.faults, state.readers[u], self._name(u)
        zombie = state.zombies[u]
        if zombie != NOBODY and (at := self._next(u, zombie)) is not None:
            # What a zombie is handed counts for nothing: so it is within one partition of Kafka, too.
            yield f"a zombie reads {name}", state._replace(zombies=replaced(state.zombies, u, at + 1))
        if position == NOBODY:
            return
        if faults.crashes:
            crashed = self._gone(state, u)._replace(faults=faults._replace(crashes=faults.crashes - 1))
            yield f"the member of {name} crashes", crashed
            yield f"the member of {name} is a zombie", crashed._replace(zombies=replaced(state.zombies, u, position))
        if faults.leaves:
            left = self._gone(state, u)._replace(faults=faults._replace(leaves=faults.leaves - 1))
            yield f"the static member of {name} leaves", left._replace(away=replaced(state.away, u, True))
        if faults.rewinds and state.committed[u] > self.begin(u) and state.written[u] == UNKNOWN:
            # Only what is assigned after it is asked to keep the order: what was out before it is replayed anyway.
            later = tuple(FOR_LATER if one != u else from_ for one, from_ in enumerate(state.counted_from))
            rewound = state._replace(
                readers=replaced(state.readers, u, self.begin(u)),
                committed=replaced(state.committed, u, self.begin(u)),
                counted_from=later,
                faults=faults._replace(rewinds=faults.rewinds - 1),
            )
            yield f"the member of {name} seeks back, and commits that", rewound

    # -- gates

    def _is_open(self, committed: tuple[int, ...], key_epoch: KeyEpoch) -> bool:
        before = self.lineage.previous(key_epoch)
        if before is not None:
            if self.unit_of[before] != self.unit_of[key_epoch]:
                if not self._is_done(committed, before):
                    return False
            elif self.rules.recursive and not self.is_open(committed, before):
                return False
        return all(self._is_done(committed, source) for source in self.lineage.predecessors(key_epoch))

    def _is_done(self, committed: tuple[int, ...], key_epoch: KeyEpoch) -> bool:
        reached, end = committed[self.unit_of[key_epoch]], self.end(key_epoch)
        expired = self.rules.expired_is_done and self.starts[key_epoch.partition] >= end
        passes = self.rules.uncommitted == "pass" and reached == UNKNOWN
        if not (reached >= end or expired or passes):
            return False
        return not self.rules.recursive or self.is_open(committed, key_epoch)

    def _end(self, key_epoch: KeyEpoch) -> int:
        entries, cut = self.logs.entries[key_epoch.partition], self.cut(key_epoch)
        if self.rules.end == "cut":
            return cut
        start = self.starts[key_epoch.partition]
        return max((at + 1 for at in range(start, cut) if not entries[at].marker), default=start)

    def _cut(self, key_epoch: KeyEpoch) -> int:
        return sum(entry.generation <= key_epoch.generation for entry in self.logs.entries[key_epoch.partition])

    # -- units and their logs

    def _split(self, p: int) -> list[tuple[KeyEpoch, ...]]:
        key_epochs = self.lineage.key_epochs(p)
        if self.rules.merges != "views":
            return [key_epochs]
        units: list[list[KeyEpoch]] = []
        for key_epoch in key_epochs:
            if not units or self.lineage.predecessors(key_epoch):
                units.append([])
            units[-1].append(key_epoch)
        return [tuple(unit) for unit in units]

    def _is_root(self, u: int, count: int) -> bool:
        first = self.units[u][0]
        return first.partition < count and first.generation == self.lineage.history[0][0]

    def _begin(self, u: int) -> int:
        first = self.units[u][0]
        before = self.lineage.previous(first)
        return max(self.starts[first.partition], 0 if before is None else self.cut(before))

    def _entries(self, u: int) -> tuple[Entry, ...]:
        unit = self.units[u]
        return self.logs.entries[unit[0].partition][: self.cut(unit[-1])]

    def _next(self, u: int, position: int, until: int | None = None) -> int | None:
        entries = self.entries(u)[:until]
        return next((at for at in range(position, len(entries)) if not entries[at].marker), None)

    def _name(self, u: int) -> str:
        first = self.units[u][0]
        return f"p{first.partition}" if self.rules.merges != "views" else f"p{first.partition}@{first.generation}"


FOR_LATER = 1 << 30
"""Nothing that this unit's present reader is handed counts: its gate is looked at when it is assigned again."""


def with_nothing(lineage: Lineage, logs: Logs) -> Logs:
    """The same logs; each first key epoch ends with an undeliverable record, such as a marker."""
    entries = list(logs.entries)
    for p in range(lineage.history[0][1]):
        key_epoch = lineage.key_epochs(p)[0]
        held = [entry for entry in entries[p] if entry.generation <= key_epoch.generation]
        rest = entries[p][len(held) :]
        entries[p] = (*held, Entry(key_epoch.generation, UNKNOWN, marker=True), *rest)
    return Logs(tuple(entries), logs.tails)


def expired(lineage: Lineage, logs: Logs) -> tuple[int, ...]:
    """Where the logs begin when retention has removed the first key epoch of each first partition."""
    first = lineage.history[0][1]
    return tuple(
        sum(one.generation <= lineage.key_epochs(p)[0].generation for one in entries) if p < first else 0
        for p, entries in enumerate(logs.entries)
    )


def returned(logs: Logs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where logs begin, and what the group has committed, if the last partition was there before."""
    last = len(logs.entries) - 1
    starts = (0,) * last + (min(len(logs.entries[last]), 1),)
    return starts, (UNKNOWN,) * last + (0,)
