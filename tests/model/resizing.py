"""The controller's steps of one resize, with crashes and elections (rules R1-R4; K301-K308).

Two controllers are compared. The *published* one keeps what it has done in memory, writes the old leader epochs into
other partitions' znodes and tells counts per topic. The *repaired* one writes a plan, and then each affected
partition's generation in the same write as its epoch, so that a successor sees from each znode what is left to do.

A leader accepts records under what it was last told; `accepted` remembers every (leader epoch, count) under which it
may have done so. From that follows what a reader of the znodes must conclude, and whether it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from anabranch.protocol import linear_hashing
from tests.model.explorer import Process, Steps
from tests.model.packing import replaced

ABSENT = -1


@dataclass(frozen=True, slots=True)
class Procedure:
    """Whose steps, and what goes wrong meanwhile."""

    steps: Literal["published", "repaired"] = "repaired"
    crashes: int = 0
    elections: int = 0
    leaders_learn_counts_alone: bool = False
    """Published: a count in a request of an unchanged leader epoch is taken up all the same (K305, K401)."""
    bumps_again: bool = True
    """Published: whether a successor bumps merge targets although all retiring partitions are marked."""


class State(NamedTuple):
    """Znodes, leaders, and the memory of the controller in office."""

    step: str
    epochs: tuple[int, ...]
    generations: tuple[int, ...]
    """Repaired: the generation in each partition's znode, written with its epoch; ABSENT in the published form."""
    maps: tuple[tuple[tuple[int, int], ...], ...]
    """Published: per partition the old leader epochs that its znode names, as (partition, epoch)."""
    told: tuple[tuple[int, int], ...]
    """What each leader goes by: (leader epoch, count)."""
    accepted: tuple[frozenset[tuple[int, int]], ...]
    memory: tuple[tuple[int, int], ...]
    topic_count: int
    """What the topic's znode says; the published controller tells it with every request."""
    crashes: int
    elections: int


class Resizing:
    """The model of one resize from `before` to `after` partitions of a topic of this base: see the module's text."""

    row_fields = "epochs", "generations", "maps", "told", "accepted"
    fault_fields = "crashes", "elections"

    def __init__(self, before: int, after: int, procedure: Procedure, *, base: int = 1) -> None:
        self.before, self.after, self.procedure, self.base = before, after, procedure, base
        self.partitions = range(max(before, after))
        self.old = range(before)
        self.targets = range(min(before, after))
        self.retiring = range(after, before)
        self.children = range(before, after)
        self.repaired = procedure.steps == "repaired"

    def initial(self) -> State:
        """All old partitions have leaders that go by the old count."""
        existing = [p < self.before for p in self.partitions]
        return State(
            step="idle",
            epochs=tuple(0 if here else ABSENT for here in existing),
            generations=tuple(0 if here and self.repaired else ABSENT for here in existing),
            maps=tuple(() for _ in existing),
            told=tuple((0, self.before) if here else (ABSENT, 0) for here in existing),
            accepted=tuple(frozenset({(0, self.before)}) if here else frozenset() for here in existing),
            memory=(),
            topic_count=self.before,
            crashes=self.procedure.crashes,
            elections=self.procedure.elections,
        )

    def finished(self, state: State) -> bool:
        """The resize is published."""
        return state.step == "done"

    def processes(self) -> list[Process[State]]:
        """The controller, its crashes, and its successors' elections."""
        return [self._repaired if self.repaired else self._published, self._fail]

    def _fail(self, state: State) -> Steps[State]:
        if state.crashes and state.step not in ("idle", "done", "takes office"):
            gone = state._replace(step="takes office", memory=(), crashes=state.crashes - 1)
            yield "the controller crashes", gone
        if state.elections and state.step in ("idle", "takes office"):
            for p in self.old:
                elected = self._bumped(state, p)._replace(elections=state.elections - 1)
                yield f"p{p} gets a new leader", self._tell(elected, p, self._count_for(elected, p))

    # -- the repaired controller

    def _repaired(self, state: State) -> Steps[State]:
        if state.step == "idle":
            yield "write the plan", state._replace(step="execute")
        elif state.step == "takes office":
            yield "the plan is found", state._replace(step="execute")
        elif state.step == "execute":
            absent = [q for q in self.children if state.epochs[q] == ABSENT]
            behind = [p for p in (*self.retiring, *self._affected()) if state.generations[p] < 1]
            if absent:
                q = absent[0]
                made = self._bumped(state, q)._replace(generations=replaced(state.generations, q, 1))
                yield f"create p{q} in generation 1", self._tell(made, q, self.after)
            elif behind:
                p = behind[0]
                fenced = self._bumped(state, p)._replace(generations=replaced(state.generations, p, 1))
                yield f"p{p}: generation 1 from epoch {fenced.epochs[p]}", fenced
            else:
                told = state
                for p in (*self.retiring, *self._affected(), *self.children):
                    told = self._tell(told, p, self.after)
                yield "all leaders have it: publish", told._replace(step="done")

    def _affected(self) -> list[int]:
        return [p for p in linear_hashing.affected_partitions(self.base, self.before, self.after) if p in self.targets]

    # -- the published controller

    def _published(self, state: State) -> Steps[State]:
        growing = self.after > self.before
        first = "bump" if growing else "mark"
        if state.step == "idle":
            yield f"write the count {self.after}", state._replace(step=first, topic_count=self.after)
        elif state.step == "takes office":
            yield "a new controller continues", state._replace(step=first)
        elif growing:
            yield from self._published_growth(state)
        else:
            yield from self._published_shrinking(state)

    def _published_growth(self, state: State) -> Steps[State]:
        if state.step == "bump":
            remembered = dict(state.memory)
            waiting = [p for p in self.partitions if state.epochs[p] != ABSENT and p not in remembered]
            if waiting:
                p = waiting[0]
                memory = (*state.memory, (p, state.epochs[p]))
                yield f"bump p{p}, remember epoch {state.epochs[p]}", self._bumped(state, p)._replace(memory=memory)
            else:
                told = state
                for p, _ in state.memory:
                    told = self._tell(told, p, self.after)
                yield "tell all existing leaders", told._replace(step="create")
        elif state.step == "create":
            absent = [q for q in self.children if state.epochs[q] == ABSENT]
            if absent:
                q = absent[0]
                made = self._bumped(state, q)._replace(maps=replaced(state.maps, q, state.memory))
                yield f"create p{q}, naming {dict(state.memory)}", self._tell(made, q, self.after)
            else:
                yield "publish", state._replace(step="done")

    def _published_shrinking(self, state: State) -> Steps[State]:
        if state.step == "mark":
            unmarked = [v for v in self.retiring if not state.maps[v]]
            if unmarked:
                v, named = unmarked[0], tuple((p, state.epochs[p]) for p in self.targets)
                marked = state._replace(maps=replaced(state.maps, v, named), memory=((v, 0),))
                yield f"mark p{v}, naming {dict(named)}", marked
            else:
                bump = bool(state.memory) or self.procedure.bumps_again
                yield "all retiring partitions are marked", state._replace(step="bump" if bump else "send", memory=())
        elif state.step == "bump":
            done = dict(state.memory)
            waiting = [p for p in self.targets if p not in done]
            if waiting:
                p = waiting[0]
                yield f"bump p{p}", self._bumped(state, p)._replace(memory=(*state.memory, (p, 0)))
            else:
                yield "all merge targets are bumped", state._replace(step="send")
        elif state.step == "send":
            told = state
            for p in self.targets:
                told = self._tell(told, p, self.after)
            yield "tell all merge targets, publish", told._replace(step="done")

    # -- what both do

    def _bumped(self, state: State, p: int) -> State:
        return state._replace(epochs=replaced(state.epochs, p, state.epochs[p] + 1))

    def _count_for(self, state: State, p: int) -> int:
        """The topic's count, or the partition's own znode (R2)."""
        if not self.repaired:
            return state.topic_count
        return self.after if state.generations[p] else self.before

    def _tell(self, state: State, p: int, count: int) -> State:
        epoch, known = state.told[p]
        if state.epochs[p] <= epoch and not (self.procedure.leaders_learn_counts_alone and count != known):
            return state  # brokers ignore a request with an epoch that they have
        now = (state.epochs[p], count)
        accepted = replaced(state.accepted, p, state.accepted[p] | {now})
        return state._replace(told=replaced(state.told, p, now), accepted=accepted)

    # -- what must never be

    def violation(self, state: State) -> str | None:
        """What a reader of the znodes would get wrong, once the resize is published."""
        if state.step != "done":
            return None
        if self.repaired:
            return self._wrong_cut(state)
        return self._wrong_parent(state) if self.after > self.before else self._wrong_threshold(state)

    def _wrong_cut(self, state: State) -> str | None:
        for p in (*self.retiring, *self._affected()):
            counts = {count for _, count in state.accepted[p]}
            if state.told[p][1] != self.after:
                return f"I11: p{p} never learns the new count"
            oldest_new = min(epoch for epoch, count in state.accepted[p] if count == self.after)
            newest_old = max(epoch for epoch, count in state.accepted[p] if count == self.before)
            if newest_old >= oldest_new:
                return f"I1: p{p} accepted under {sorted(counts)} in epochs {oldest_new}..{newest_old}"
        return None

    def _wrong_parent(self, state: State) -> str | None:
        for q in self.children:
            named = dict(state.maps[q])
            true_parent = linear_hashing.ancestor(q, self.before, self.base)
            parent = linear_hashing.parent(q, self.base)
            while parent not in named:
                parent = linear_hashing.parent(parent, self.base)
            if parent != true_parent:
                return f"K302: p{q} would wait for p{parent}, its keys were in p{true_parent}"
            newest_old = max((epoch for epoch, count in state.accepted[parent] if count == self.before), default=-1)
            if newest_old > named[parent]:
                return (
                    f"K301: p{q} waits for epoch {named[parent]} of p{parent}, which took old records in {newest_old}"
                )
        return None

    def _wrong_threshold(self, state: State) -> str | None:
        for retiring in self.retiring:
            target = linear_hashing.ancestor(retiring, self.after, self.base)
            new = [epoch for epoch, count in state.accepted[target] if count == self.after]
            if not new:
                return f"K305: p{target} never learns the new count"
            named = dict(state.maps[retiring])[target]
            if min(new) <= named:
                return (
                    f"K303: p{target} takes new records in epoch {min(new)}, which p{retiring} names as old ({named})"
                )
        return None
