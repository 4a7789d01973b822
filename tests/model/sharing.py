"""Members of a share group and the records that they get again and again (KIP-932).

Two members acquire the records of one share partition, and accept, release or reject each, at any time. After the lock
has expired that is a late acknowledgement. The first member may freeze for ever or die. The leader stores each change
at the share coordinator before it counts. A write fails, is stored without a response, or arrives after the leader has
given it up. Another leader reads the stored state, while the last write of the former one is still on its way.

Never: two members hold a record at one leader (two); two members are told that they accepted it (twice); a member
accepts it after another's lock began (late); a leader delivers it more often than the limit (limit); it is archived
below the limit and without a reject (early); the stored state leaves out a record for no reason (lost). In the end each
record is done.

The product decides, by `share_leader`. The model keeps books of its own: who holds what, and who was told what. A
former leader delivers nothing after its successor has read the state; a real one may until it learns of it. No lock is
renewed.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from anabranch.broker.coordinators.share_partitions.in_flight import RecordState
from anabranch.broker.coordinators.share_partitions.share_partition import AcknowledgeType
from tests.model import share_leader
from tests.model.explorer import Forbidden, Process, Steps
from tests.model.packing import replaced
from tests.model.share_leader import Batches, InFlightState, ShareLeader, Stored

NOBODY: Final = -1
UNLIMITED: Final = 10**6
MEMBERS: Final = (0, 1)
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
VERBS: Final = {ACCEPT: "accepts", RELEASE: "releases", REJECT: "rejects"}


@dataclass(frozen=True, slots=True)
class Rules:
    """The product's rules; every other value is a defect."""

    checks_holder: bool = True
    """Only the member that holds a record may acknowledge it."""
    locks_expire: bool = True
    start: Literal["done", "last"] = "done"
    """The stored start offset is below all records in flight, or behind the last one that is done."""
    limited: bool = True
    """A record is archived after its last delivery."""
    restores: Literal["latest", "before"] = "latest"
    """A new leader gets the stored state, or the one before the last write."""
    fences: bool = True
    """The coordinator refuses writes of former leaders."""
    numbers: bool = True
    """The coordinator refuses writes that arrive after a later one of the same leader."""


class Faults(NamedTuple):
    """How often each may happen."""

    freezes: int = 0
    """A member does nothing any more; its connection stays."""
    deaths: int = 0
    failures: int = 0
    """Of writes, in each of three ways."""
    leaders: int = 0


class Change(NamedTuple):
    """A change that the leader has to store, and the acknowledgement behind it."""

    batches: Batches
    member: int = NOBODY
    type: AcknowledgeType | None = None
    expired: bool = False


class Write(NamedTuple):
    """A write that its leader waits for no more."""

    start: int
    change: Change
    epoch: int
    overtaken: bool = False


class Record(NamedTuple):
    """What has happened to a record, by the model's own books."""

    deliveries: int = 0
    by_leader: int = 0
    holder: int = NOBODY
    left: int = 0
    """Of its lock."""
    settled: bool = False
    """Its holder accepted or rejected it, with any outcome."""
    rejected: bool = False
    told: bool = False
    """A member was told that it accepted it."""


class State(NamedTuple):
    """What a schedule has come to."""

    leader: InFlightState
    stored: Stored
    before: Stored
    """What was stored before the last write."""
    records: tuple[Record, ...]
    views: tuple[frozenset[int], ...]
    """What each member has and has not acknowledged."""
    faults: Faults
    epoch: int = 0
    changes: tuple[Change, ...] = ()
    """In the order in which they are stored."""
    late: tuple[Write, ...] = ()
    first: Literal["works", "frozen", "dead", "left"] = "works"
    """What has become of the first member; what one that left held is released."""


class Sharing:
    """`extents` are the batches of the log; locks last `lock` ticks."""

    row_fields = "records", "views"
    fault_fields = ("faults",)

    def __init__(
        self,
        rules: Rules | None = None,
        *,
        extents: tuple[tuple[int, int], ...] = ((0, 0), (1, 1)),
        limit: int = 2,
        lock: int = 1,
        at_once: int = 1,
        isolates: bool = False,
        types: tuple[AcknowledgeType, ...] = (ACCEPT, RELEASE, REJECT),
        faults: Faults | None = None,
    ) -> None:
        self.rules, self.limit, self.lock = rules or Rules(), limit, lock
        self.types, self.faults, self.count = types, faults or Faults(), extents[-1][1] + 1
        product_limit = limit if self.rules.limited else UNLIMITED
        self.leader = ShareLeader(extents, limit=product_limit, lock=lock, at_once=at_once, isolates=isolates)

    def initial(self) -> State:
        """Nothing was delivered."""
        nothing = (frozenset[int](),) * len(MEMBERS)
        stored, records = Stored(), (Record(),) * self.count
        return State(self.leader.load(stored), stored, stored, records, nothing, self.faults)

    def finished(self, state: State) -> bool:
        """Whether every record is done."""
        return state.leader[0] == self.count

    def violation(self, state: State) -> str | None:
        """Whether a record is left out by the stored state for no reason."""
        done = set(range(state.stored.start))
        done |= {r for one in state.stored.batches if one.state.terminal for r in range(one.first, one.last + 1)}
        for r in done:
            record = state.records[r]
            if not record.settled and record.deliveries < self.limit:
                return f"lost: {r} is done, but was delivered {record.deliveries} times and not acknowledged"
        return None

    def processes(self) -> list[Process[State]]:
        """All who do something."""
        members = [functools.partial(self._member, m) for m in MEMBERS]
        return [self._clock, *members, self._expire, self._release, self._write, self._arrivals, self._election]

    def _clock(self, state: State) -> Steps[State]:
        if share_leader.is_locked(state.leader):
            yield "time passes", self._tick(state)

    def _expire(self, state: State) -> Steps[State]:
        if self.rules.locks_expire:
            leader, batches = self.leader.release(state.leader, None)
            if batches:
                change = Change(batches, expired=True)
                yield "locks expire", state._replace(leader=leader, changes=(*state.changes, change))

    def _release(self, state: State) -> Steps[State]:
        if state.first == "dead":
            leader, batches = self.leader.release(state.leader, 0)
            changes = (*state.changes, Change(batches)) if batches else state.changes
            yield "the leader releases what m0 held", state._replace(leader=leader, changes=changes, first="left")

    def _write(self, state: State) -> Steps[State]:
        if state.changes:
            yield from self._store(state, state.changes[0])

    def _arrivals(self, state: State) -> Steps[State]:
        for place, write in enumerate(state.late):
            yield self._arrive(state._replace(late=state.late[:place] + state.late[place + 1 :]), write, place)

    def _election(self, state: State) -> Steps[State]:
        if state.faults.leaders:
            yield f"leader {state.epoch + 1} reads the state", self._elect(state)

    # -- members

    def _member(self, m: int, state: State) -> Steps[State]:
        if m == 0 and state.first != "works":
            return
        leader, got = self.leader.acquire(state.leader, m)
        if got:
            yield self._deliver(state, m, leader, got)
        for r in sorted(state.views[m]):
            for type_ in self.types:
                yield self._acknowledge(state, m, r, type_)
        faults = state.faults
        if m == 0 and faults.freezes:
            yield "m0 freezes", state._replace(first="frozen", faults=faults._replace(freezes=faults.freezes - 1))
        if m == 0 and faults.deaths:
            yield "m0 dies", state._replace(first="dead", faults=faults._replace(deaths=faults.deaths - 1))

    def _deliver(self, state: State, m: int, leader: InFlightState, got: tuple[int, ...]) -> tuple[str, State]:
        action, records = f"m{m} acquires {', '.join(map(str, got))}", state.records
        for r in got:
            record = records[r]
            if record.holder != NOBODY:
                raise Forbidden(action, f"two: m{record.holder} holds {r}")
            if record.by_leader == self.limit:
                raise Forbidden(action, f"limit: {r} had {self.limit} deliveries by this leader")
            delivered = record._replace(
                deliveries=min(record.deliveries + 1, self.limit),
                by_leader=record.by_leader + 1,
                holder=m,
                left=self.lock,
            )
            records = replaced(records, r, delivered)
        views = replaced(state.views, m, state.views[m] | set(got))
        return action, state._replace(leader=leader, records=records, views=views)

    def _acknowledge(self, state: State, m: int, r: int, type_: AcknowledgeType) -> tuple[str, State]:
        action, record = f"m{m} {VERBS[type_]} {r}", state.records[r]
        state = state._replace(views=replaced(state.views, m, state.views[m] - {r}))
        sender = m if self.rules.checks_holder or record.holder == NOBODY else record.holder
        leader, batches = self.leader.acknowledge(state.leader, sender, r, type_)
        if not batches:  # refused, or ignored below the start offset, as in Kafka
            return f"{action}, which changes nothing", state
        if type_ is ACCEPT and record.holder != m:
            holder = "nobody" if record.holder == NOBODY else f"m{record.holder}"
            raise Forbidden(action, f"late: {holder} holds {r}")
        if type_ is not RELEASE:
            record = record._replace(settled=True, rejected=record.rejected or type_ is REJECT)
        changes = *state.changes, Change(batches, m, type_)
        return action, state._replace(leader=leader, changes=changes, records=replaced(state.records, r, record))

    # -- writes

    def _store(self, state: State, change: Change) -> Steps[State]:
        """What comes of the leader's next write."""
        kept = state._replace(changes=state.changes[1:])
        write = self._next_write(state, change)
        title = f"the change {_told(change)}"
        written = self._written(kept, write, len(state.late))
        if written is None:
            return
        completed = written._replace(leader=self.leader.complete(state.leader, change.batches))
        yield f"{title} is stored", self._confirm(completed, change)
        if state.faults.failures:
            undone = self.leader.roll_back(state.leader, change.batches)
            left = state.faults._replace(failures=state.faults.failures - 1)
            failed = kept._replace(leader=undone, faults=left)
            yield f"{title} fails", failed
            yield f"{title} is stored, but not answered", written._replace(leader=undone, faults=left)
            given_up = write._replace(change=change._replace(member=NOBODY))
            yield f"{title} is given up", failed._replace(late=(*state.late, given_up))

    def _next_write(self, state: State, change: Change) -> Write:
        start = self.leader.start_after(state.leader, change.batches)
        if self.rules.start == "last":
            start = max(start, *(one.last + 1 for one in change.batches if one.state.terminal), 0)
        return Write(start, change, state.epoch)

    def _written(self, state: State, write: Write, older: int) -> State | None:
        """The state after a write at the share coordinator; None if it is refused.

        The first `older` writes that are on their way were sent before it.
        """
        stored = share_leader.write(
            state.stored,
            write.start,
            write.change.batches,
            epoch=write.epoch,
            overtaken=write.overtaken,
            fences=self.rules.fences,
            numbers=self.rules.numbers,
        )
        if stored is None:
            return None
        overtaken = (one._replace(overtaken=one.epoch == write.epoch or one.overtaken) for one in state.late[:older])
        late = *overtaken, *state.late[older:]
        return state._replace(stored=stored, before=state.stored, late=late)

    def _arrive(self, state: State, write: Write, older: int) -> tuple[str, State]:
        """A write of a former leader, or one that was given up, arrives."""
        title = f"the change {_told(write.change)} of leader {write.epoch}"
        written = self._written(state, write, older)
        if written is None:
            return f"{title} is refused", state
        return f"{title} arrives late", self._confirm(written, write.change, in_time=False)

    def _confirm(self, state: State, change: Change, *, in_time: bool = True) -> State:
        """A change is stored: its member is told. If the leader is, too, its records have no holder any more."""
        records = state.records
        for batch in change.batches:
            for r in range(batch.first, batch.last + 1):
                record = records[r]
                if change.type is ACCEPT and change.member != NOBODY:
                    if record.told:
                        raise Forbidden(
                            f"m{change.member} is told that {r} is stored", f"twice: {r} was accepted before"
                        )
                    record = record._replace(told=True)
                if batch.state is RecordState.ARCHIVED and not record.rejected and record.deliveries < self.limit:
                    raise Forbidden("it is archived", f"early: {r} after {record.deliveries} of {self.limit}")
                if in_time and not (change.expired and record.left):
                    record = record._replace(holder=NOBODY, left=0)
                records = replaced(records, r, record)
        return state._replace(records=records)

    def _elect(self, state: State) -> State:
        """Another leader reads the state; the last write of the former one is still on its way."""
        epoch = state.epoch + 1
        basis = state.stored if self.rules.restores == "latest" else state.before
        stored = basis._replace(epoch=epoch)
        late = state.late
        if state.changes:
            first = state.changes[0]
            late = (*late, self._next_write(state, first))
        return state._replace(
            leader=self.leader.load(stored),
            stored=stored,
            before=stored,
            records=tuple(one._replace(by_leader=0, holder=NOBODY, left=0) for one in state.records),
            faults=state.faults._replace(leaders=state.faults.leaders - 1),
            epoch=epoch,
            changes=(),
            late=late,
        )

    def _tick(self, state: State) -> State:
        records = tuple(one._replace(left=max(0, one.left - 1)) for one in state.records)
        return state._replace(leader=share_leader.later(state.leader), records=records)


def _told(change: Change) -> str:
    return ", ".join(f"{one.first}-{one.last} {one.state.name.lower()}" for one in change.batches)
