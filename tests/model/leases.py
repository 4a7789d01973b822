"""A member of a KIP-848 group and its replacement: who may hand out records, and when.

Two members share a group of one partition, whose records have one key. The coordinator ends a member's session so long
after the last heartbeat that it *received*; a member's lease ends so long after the last answered heartbeat that it
*sent*. Requests and responses take any time or are lost, the clock goes on at any moment, and a member that does
nothing meanwhile is a frozen one. It has its records at hand: it hands them out whenever it may.

Never: a record is handed out after the next assignment's member handed out a later one (order), after it was committed
(again), or before one that nobody handed out (skip). In the end all records are committed.

The product decides, by `membership`. The model has rules of its own for the target assignment (the owner stays; if it
is gone, another member follows) and for epochs. Each heartbeat is a full one. A second lasts one heartbeat interval. No
rebalance timeout expires, and no member is static.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from tests.model import membership
from tests.model.explorer import Forbidden, Process, Steps
from tests.model.membership import OUTSIDE, SILENT, Entry, Renewals
from tests.model.packing import replaced

NOBODY = UNKNOWN = -1
FOR_EVER: Final = 10**6
BOTH: Final = (0, 1)


@dataclass(frozen=True, slots=True)
class Rules:
    """The product's rules; every other value is a defect."""

    counted_from: Literal["sending", "arrival"] = "sending"
    """Which time of the heartbeat the lease begins with: of its request or of its response."""
    believes: Literal["coordinator", "itself"] = "coordinator"
    """Whose session timeout the lease is made of."""
    asks: bool = True
    """A member that was told no session timeout needs a response within two heartbeat intervals."""
    looks: bool = True
    """A member looks at its lease when it hands out a record or commits."""
    fence: Literal["epoch", "member", "none"] = "epoch"
    """What a commit must have: the member's epoch, or only the id of a member."""
    sessions_end: bool = True
    """The coordinator removes a member whose session is over."""
    extends: bool = True
    """A heartbeat never shortens a session."""
    restores: Literal["announced", "own"] = "announced"
    """The first session at a new coordinator is as long as the announced one, if its own setting is shorter."""


class Faults(NamedTuple):
    """How often each may happen."""

    expiries: int = 1
    """Sessions of living members that the coordinator ends."""
    losses: int = 0
    deaths: int = 0
    changes: int = 0
    """Of the session timeout, by an administrator."""
    moves: int = 0
    """Of the group to another coordinator."""


class Call(NamedTuple):
    """A heartbeat, on its way to the coordinator or back."""

    answered: bool
    age: int
    epoch: int
    turn: int
    """The assignment that the member has; in a response, the one that it gets. 0: none."""
    announced: int = SILENT


class Member(NamedTuple):
    """What a member knows."""

    epoch: int = OUTSIDE
    turn: int = 0
    """The number of the assignment of the partition to this member; 0: it has none."""
    position: int = UNKNOWN
    renewals: Renewals = ()
    """(age, announced session timeout) of the answered heartbeats on which the lease rests."""
    call: Call | None = None
    commit: tuple[int, int] | None = None
    """(epoch, offset), on its way to the coordinator."""
    dead: bool = False


class State(NamedTuple):
    """What a schedule has come to."""

    members: tuple[Member, ...]
    entries: tuple[Entry, ...]
    session: int
    faults: Faults
    epoch: int = 1
    owner: int = 0
    turn: int = 1
    committed: int = 0
    committed_max: int = 0
    handed_out: int = 0
    latest: tuple[int, int] = (0, UNKNOWN)
    """The newest assignment by which a record was handed out, and the last record that was."""


class Leases:
    """Two members; the first owns the partition. Sessions last `session` seconds; after a change, `changed`."""

    row_fields = "members", "entries"
    fault_fields = ("faults",)

    def __init__(
        self,
        rules: Rules | None = None,
        *,
        records: int = 2,
        session: int = 3,
        changed: int = 2,
        announces: bool = True,
        strict: bool = False,
        faults: Faults | None = None,
    ) -> None:
        self.rules, self.records, self.announces = rules or Rules(), records, announces
        self.session, self.changed, self.faults = session, changed, faults or Faults()
        self.strict = strict
        """No record may be handed out by a member whose session the coordinator has ended: needs no second record."""
        self.oldest = max(session, changed, 2)
        """Heartbeats of this age and older are alike."""
        self.older = functools.cache(self._older)

    def initial(self) -> State:
        """Both have just been answered; the first begins at the first record."""
        announced = self.session if self.announces else SILENT
        renewals = ((0, self._believed(announced)),)
        idle = Member(1, renewals=renewals if self.faults.changes else ())
        owner = Member(1, turn=1, position=0, renewals=renewals)
        entry = Entry(1, OUTSIDE, self.session, announced)
        return State((owner, idle), (entry, entry), self.session, self.faults)

    def violation(self, state: State) -> str | None:
        """Nothing: a step that must not be raises Forbidden."""

    def finished(self, state: State) -> bool:
        """Whether all records were handed out and committed."""
        return state.committed == self.records

    def processes(self) -> list[Process[State]]:
        """All who do something."""
        each = self._messages, self._acts, self._expire
        return [self._clock, *(functools.partial(act, m) for m in BOTH for act in each), self._administrator]

    def _clock(self, state: State) -> Steps[State]:
        yield "a second passes", self._tick(state)

    def _expire(self, m: int, state: State) -> Steps[State]:
        entry = state.entries[m]
        if entry.epoch == OUTSIDE or not membership.is_over(entry.left) or not self.rules.sessions_end:
            return
        faults, dead = state.faults, state.members[m].dead
        if faults.expiries or dead:
            left = faults if dead else faults._replace(expiries=faults.expiries - 1)
            yield f"the session of m{m} ends", self._removed(state, m)._replace(faults=left)

    def _administrator(self, state: State) -> Steps[State]:
        faults = state.faults
        if faults.changes:
            left = faults._replace(changes=faults.changes - 1)
            yield f"sessions last {self.changed} s", state._replace(session=self.changed, faults=left)
        if faults.moves:
            yield "the group has another coordinator", self._moved(state)

    # -- members

    def _acts(self, m: int, state: State) -> Steps[State]:
        member = state.members[m]
        if member.dead:
            return
        may = not self.rules.looks or membership.may_hand_out(member.renewals)
        if member.call is None:
            call = Call(answered=False, age=0, epoch=member.epoch, turn=member.turn)
            yield f"m{m} sends a heartbeat", self._with(state, m, member._replace(call=call))
        if member.turn and member.position == UNKNOWN:
            begun = member._replace(position=state.committed)
            yield f"m{m} starts at {state.committed}", self._with(state, m, begun)
        elif member.turn and may:
            if member.position < self.records:
                yield self._hand_out(state, m)
            if member.position > state.committed and member.commit is None:
                commit = member.epoch, member.position
                yield f"m{m} commits {member.position}", self._with(state, m, member._replace(commit=commit))
        if state.faults.deaths:
            left = state.faults._replace(deaths=state.faults.deaths - 1)
            yield f"m{m} dies", self._with(state, m, member._replace(dead=True))._replace(faults=left)

    def _hand_out(self, state: State, m: int) -> tuple[str, State]:
        member = state.members[m]
        record, (turn, last) = member.position, state.latest
        action = f"m{m} hands out {record}"
        if member.turn < turn and record < last:
            raise Forbidden(action, f"order: {record} by assignment {member.turn} after {last} by assignment {turn}")
        if self.strict and (state.owner, state.turn) != (m, member.turn):
            raise Forbidden(action, f"order: m{m} has assignment {member.turn}, and the group {state.turn}")
        if record < state.committed_max:
            raise Forbidden(action, f"again: {record} was committed")
        if record > state.handed_out:
            raise Forbidden(action, f"skip: {state.handed_out} was not handed out before {record}")
        latest = state.latest if member.turn < turn else (member.turn, record)
        after = self._with(state, m, member._replace(position=record + 1))
        return action, after._replace(handed_out=max(state.handed_out, record + 1), latest=latest)

    def _learn(self, state: State, m: int, call: Call) -> State:
        """A member gets the response to its heartbeat."""
        member = state.members[m]
        if call.epoch == OUTSIDE:
            return self._with(state, m, Member(commit=member.commit))
        age = call.age if self.rules.counted_from == "sending" else 0
        before = [(old, told) for old, told in member.renewals if told != self._believed(call.announced)]
        renewals = (*before, (age, self._believed(call.announced)))
        position = member.position if call.turn == member.turn else UNKNOWN
        if call.turn == 0 and not self.faults.changes:
            renewals = ()  # the heartbeat that brings an assignment outlasts them
        learned = member._replace(epoch=call.epoch, turn=call.turn, position=position, call=None)
        return self._with(state, m, learned._replace(renewals=self._in_force(renewals)))

    def _believed(self, announced: int) -> int:
        trusts_itself = self.rules.believes == "itself" or (announced == SILENT and not self.rules.asks)
        return FOR_EVER if trusts_itself else announced

    def _in_force(self, renewals: Renewals) -> Renewals:
        """Without those that no longer count."""
        return tuple(one for one in renewals if membership.may_hand_out((one,)))

    # -- the coordinator, and what is on its way

    def _messages(self, m: int, state: State) -> Steps[State]:
        member = state.members[m]
        if member.call is not None:
            if not member.call.answered:
                yield f"the coordinator answers m{m}", self._answer(state, m, member.call)
            elif not member.dead:
                yield f"m{m} is answered", self._learn(state, m, member.call)
            if state.faults.losses and not member.dead:
                left = state.faults._replace(losses=state.faults.losses - 1)
                yield (
                    f"a message of m{m} is lost",
                    self._with(state, m, member._replace(call=None))._replace(faults=left),
                )
        if member.commit is not None:
            yield self._commit(self._with(state, m, member._replace(commit=None)), m, *member.commit)

    def _answer(self, state: State, m: int, call: Call) -> State:
        entry, known = state.entries[m], state.entries[m].epoch != OUTSIDE
        claims, owns = call.turn > 0, state.owner == m
        accepted = known and membership.accepts_heartbeat(entry, call.epoch, claims=claims, owns=owns)
        if not accepted and call.epoch != OUTSIDE:
            refused = Call(answered=True, age=call.age, epoch=OUTSIDE, turn=0)
            return self._with(state, m, state.members[m]._replace(call=refused))
        if not accepted:  # a fenced member leaves before it joins again
            state = self._joined(self._removed(state, m) if known else state, m)
        entry = state.entries[m]
        announced = state.session if self.announces else SILENT
        entry = Entry(
            epoch=state.epoch,
            previous=entry.previous if entry.epoch == state.epoch else entry.epoch,
            left=membership.prolonged(entry.left, state.session) if self.rules.extends else state.session,
            announced=max(entry.announced, announced),
        )
        turn = state.turn if state.owner == m else 0
        answer = Call(answered=True, age=call.age, epoch=entry.epoch, turn=turn, announced=announced)
        state = state._replace(entries=replaced(state.entries, m, entry))
        return self._with(state, m, state.members[m]._replace(call=answer))

    def _joined(self, state: State, m: int) -> State:
        epoch = state.epoch + 1
        state = state._replace(epoch=epoch, entries=replaced(state.entries, m, Entry(epoch=epoch)))
        return state if state.owner != NOBODY else state._replace(owner=m, turn=state.turn + 1)

    def _removed(self, state: State, m: int) -> State:
        state = state._replace(epoch=state.epoch + 1, entries=replaced(state.entries, m, Entry()))
        if state.owner != m:
            return state
        if state.entries[1 - m].epoch == OUTSIDE:
            return state._replace(owner=NOBODY)
        return state._replace(owner=1 - m, turn=state.turn + 1)

    def _commit(self, state: State, m: int, epoch: int, offset: int) -> tuple[str, State]:
        known = state.entries[m].epoch
        accepted = {
            "epoch": membership.accepts_commit(known, epoch),
            "member": known != OUTSIDE,
            "none": True,
        }[self.rules.fence]
        if not accepted:
            return f"the commit of {offset} by m{m} is refused", state
        after = state._replace(committed=offset, committed_max=max(state.committed_max, offset))
        return f"{offset} is committed by m{m}", after

    def _moved(self, state: State) -> State:
        """Another coordinator begins all sessions again."""
        forgets = self.rules.restores == "own"
        entries = tuple(
            one._replace(left=membership.restarted(state.session, SILENT if forgets else one.announced))
            if one.epoch != OUTSIDE
            else one
            for one in state.entries
        )
        return state._replace(entries=entries, faults=state.faults._replace(moves=state.faults.moves - 1))

    # -- time

    def _tick(self, state: State) -> State:
        return state._replace(
            members=tuple(map(self.older, state.members)),
            entries=tuple(entry._replace(left=max(0, entry.left - 1)) for entry in state.entries),
        )

    def _older(self, member: Member) -> Member:
        oldest, call = self.oldest, member.call
        return member._replace(
            renewals=self._in_force(tuple((min(age + 1, oldest), told) for age, told in member.renewals)),
            call=None if call is None else call._replace(age=min(call.age + 1, oldest)),
        )

    def _with(self, state: State, m: int, member: Member) -> State:
        return state._replace(members=replaced(state.members, m, member))
