"""When a topic becomes ordered, and writes without a generation (R16).

Two partitions of one topic, each with a leader, and a controller that resizes the topic. At each leader a batch with a
generation comes up, which needs the mark in the topic's znode; batches without one come up all the time. Every order is
visited, with controllers that die between any two steps, leaders that are replaced, and a write that somebody else's
was before. A batch with a generation must never be in a log without the mark, the mark must never be lost, and what is
planned after it must never let in a batch without a generation.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from tests.model.explorer import Forbidden, Process, Steps
from tests.model.packing import replaced

LEADERS: Final = (0, 1)


@dataclass(frozen=True, slots=True)
class Rules:
    """The design; every other value is a defect."""

    appended: Literal["when marked", "at once"] = "when marked"
    """At once: the acknowledgement alone waits for the mark."""
    told: Literal["when written", "before"] = "when written"
    carried: bool = True
    """Whether a leader that is taken to a new generation is told of the mark by the same request."""
    kept: bool = True
    """Whether what is written for a resize has the mark in it."""


class Leader(NamedTuple):
    """What one leader knows, what it has of its batch, and what is on its way to it, in order."""

    generation: int = 0
    marked: bool = False
    batch: Literal["coming", "held", "stored", "acknowledged"] = "coming"
    inbox: tuple[tuple[int, bool], ...] = ()
    """Requests of controllers: (generation, whether the topic is marked)."""


class State(NamedTuple):
    """Everything that decides what may happen next."""

    marked: bool = False
    """In the znode."""
    ever: bool = False
    planned: int = 0
    published: int = 0
    known: tuple[bool, ...] = (True,)
    """Of each generation, whether the mark stood in the znode when it was planned; the first one refuses nobody."""
    version: int = 0
    believes: tuple[bool, int, int] | None = (False, 0, 0)
    """The controller's copy of the znode: (marked, planned, version); None while there is no controller."""
    untold: bool = False
    leaders: tuple[Leader, ...] = (Leader(), Leader())
    crashes: int = 0
    replaced: int = 0
    others: int = 0


class Marking:
    """The model: see the module's text."""

    row_fields = ("leaders",)
    fault_fields = "crashes", "replaced", "others"

    def __init__(self, rules: Rules, *, resizes: int, crashes: int = 1, replaced: int = 0, others: int = 0) -> None:
        self.rules, self.resizes = rules, resizes
        self.faults = crashes, replaced, others

    def initial(self) -> State:
        """A topic that only stock producers have written to."""
        crashes, replaced_, others = self.faults
        return State(crashes=crashes, replaced=replaced_, others=others)

    def finished(self, state: State) -> bool:
        """Everything is stored, planned, published, and known to all."""
        settled = all(one.batch == "acknowledged" and one.marked and not one.inbox for one in state.leaders)
        return settled and state.published == self.resizes and state.believes is not None

    def violation(self, state: State) -> str | None:
        """What must never be."""
        if state.ever and not state.marked:
            return "lost: the mark was in the znode, and is no more"
        if not state.marked and any(one.batch == "stored" for one in state.leaders):
            return "unmarked: a batch with a generation is in a log, and nothing is written of it"
        return None

    def processes(self) -> list[Process[State]]:
        """All who do something."""
        return [self._controller, *(functools.partial(self._leader, at) for at in LEADERS), self._faults]

    def _controller(self, state: State) -> Steps[State]:
        if state.believes is None:
            read = state._replace(believes=(state.marked, state.planned, state.version))
            yield "another controller reads everything and tells it", self._led(read, LEADERS)
            return
        marked, planned, version = state.believes
        if version != state.version:
            yield "its write is lost: it reads", state._replace(believes=(state.marked, state.planned, state.version))
            return
        asking = any(one.batch != "coming" and not one.marked for one in state.leaders)
        if state.untold:
            yield "all are told that it is marked", self._told(state._replace(untold=False))
        elif asking and not marked and self.rules.told == "before" and not any(m for _, m in state.leaders[0].inbox):
            yield "all are told that it will be marked", self._told(state)
        if asking and not marked:
            written = state._replace(marked=True, ever=True, version=version + 1, believes=(True, planned, version + 1))
            yield "the mark is written", written._replace(untold=True)
        elif asking and marked and not state.untold and not any(one.inbox for one in state.leaders):
            yield "who asks is told again", self._told(state)
        if planned < self.resizes and planned == state.published:
            kept = marked and self.rules.kept
            planned += 1
            after = state._replace(
                marked=kept,
                planned=planned,
                known=(*state.known, state.marked),
                version=version + 1,
                believes=(kept, planned, version + 1),
            )
            yield f"generation {planned} is planned", self._led(after, LEADERS)
        if state.published < state.planned and all(one.generation == state.planned for one in state.leaders):
            yield f"generation {state.planned} is published", state._replace(published=state.planned)

    def _told(self, state: State) -> State:
        leaders = (one._replace(inbox=(*one.inbox, (0, True))) for one in state.leaders)
        return state._replace(leaders=tuple(leaders))

    def _led(self, state: State, whom: tuple[int, ...]) -> State:
        assert state.believes is not None
        marked, planned, _ = state.believes
        request = planned, marked and self.rules.carried
        leaders = [
            one._replace(inbox=(*one.inbox, request)) if at in whom else one for at, one in enumerate(state.leaders)
        ]
        return state._replace(leaders=tuple(leaders))

    def _leader(self, at: int, state: State) -> Steps[State]:
        one = state.leaders[at]

        def after(**changes: object) -> State:
            return state._replace(leaders=replaced(state.leaders, at, one._replace(**changes)))  # type: ignore[arg-type]

        if one.inbox:
            (generation, marked), *rest = one.inbox
            news = {"generation": max(one.generation, generation), "marked": one.marked or marked}
            yield f"leader {at} hears of g{generation}{', marked' * marked}", after(inbox=tuple(rest), **news)
        if one.batch == "coming":
            yield f"a batch with a generation comes to leader {at}", after(batch="held")
        if one.batch == "held" and (one.marked or self.rules.appended == "at once"):
            yield f"leader {at} appends it", after(batch="stored")
        if one.batch == "stored" and one.marked:
            yield f"leader {at} acknowledges it", after(batch="acknowledged")
        if one.generation > 0 and not one.marked and state.known[one.generation]:
            reason = f"outsider: leader {at} takes a batch without a generation into g{one.generation}"
            raise Forbidden("a batch without a generation comes", f"{reason}, which was planned when the mark stood")

    def _faults(self, state: State) -> Steps[State]:
        if state.crashes and state.believes is not None:
            yield "the controller dies", state._replace(believes=None, untold=False, crashes=state.crashes - 1)
        if state.others:
            yield "somebody else writes the znode", state._replace(version=state.version + 1, others=state.others - 1)
        if state.replaced and state.believes is not None and state.believes[2] == state.version:
            for at, one in enumerate(state.leaders):
                begun: Leader = Leader(batch="coming" if one.batch == "held" else one.batch)
                fresh = state._replace(leaders=replaced(state.leaders, at, begun), replaced=state.replaced - 1)
                yield f"leader {at} is replaced", self._led(fresh, (at,))
