"""Producer, leaders and controller during resizes: the content of logs (invariants I0-I3, I6, I8; rules R1-R8).

One idempotent producer sends a few records, each a batch of its own, while the controller takes the topic through a
script of partition counts. Every order of their steps is visited, with lost answers, batches given up, leaders that
fail over, and tails that only the old leader had. `Rules` are the repaired ones; each field set otherwise is a defect
of the published text, or of a plausible implementation of it, named as in docs/resize.md.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from anabranch.protocol import linear_hashing
from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.linear_hashing import KeyClass
from tests.model.explorer import Process, Steps
from tests.model.packing import replaced

ABSENT: Final = -1
MARKER: Final = -1
IN_FLIGHT_MAX: Final = 2
Verdict = Literal["stored", "refused", "behind", "gap", "unknown"]
"""A refusal is final if the leader's generation is above the batch's; otherwise the leader is `behind`."""
Status = Literal["queued", "in flight", "settled"]


@dataclass(frozen=True, slots=True)
class Rules:
    """The repaired design; every other value is a defect."""

    generation_chosen_at: Literal["partitioning", "request"] = "partitioning"
    rehash: bool = True
    """A refused batch is partitioned again; otherwise it is retried where it was."""
    barrier: bool = True
    """No record overtakes an older unresolved one of another key epoch that shares its keys."""
    atomic_switch: bool = True
    """A batch of an older generation that was never transmitted is not transmitted any more."""
    resolve_in_place: bool = True
    """A batch whose outcome is unknown stays where it is until its leader has said."""
    monotone_view: bool = True
    first_batch_alone: bool = True
    fence_retiring: bool = True
    check: Literal["class", "count"] = "class"
    duplicates_first: bool = True
    memory: Literal["partition", "topic"] = "partition"
    boundary: Literal["strict", "loose"] = "strict"
    """Who may say where a key epoch ends: a leader that has adopted what follows it, or any."""
    adoption: Literal["acknowledged", "asynchronous"] = "acknowledged"
    """Whether the controller publishes a generation only when every affected leader has it."""
    sealed_take_markers: bool = True


@dataclass(frozen=True, slots=True)
class Load:
    """What happens besides the resizes."""

    hashes: tuple[int, ...]
    """The key hash of each record, in the order in which they are sent."""
    lost_answers: int = 0
    failovers: int = 0
    acks_all: bool = True
    gives_up: bool = False
    transactional: bool = False


class Batch(NamedTuple):
    """One record on its way: where to, and for which generation that was decided."""

    record: int
    partition: int
    generation: int
    status: Status = "queued"
    doubtful: bool = False
    """It was transmitted and nobody has said what became of it."""


class Entry(NamedTuple):
    """What a log holds: the class generation of its leader then, and the record (or MARKER)."""

    generation: int
    record: int


class State(NamedTuple):
    """Everything that decides what may happen next."""

    planned: int
    published: int
    adopted: tuple[int, ...]
    """The class generation of each partition's leader; ABSENT before it is created."""
    logs: tuple[tuple[Entry, ...], ...]
    replicated: tuple[int, ...]
    view: int
    """The generation that the producer knows."""
    batches: tuple[Batch, ...]
    network: tuple[tuple[tuple[int, int], ...], ...]
    """Requests on their way to each partition: (record, generation they carry)."""
    answers: tuple[tuple[int, Verdict, int], ...]
    lost_answers: int
    failovers: int
    ends: tuple[tuple[KeyEpoch, int], ...]
    """The boundaries that somebody was told."""


class Production:
    """The model: see the module's text."""

    row_fields = "adopted", "logs", "replicated", "network"
    fault_fields = "lost_answers", "failovers"

    def __init__(self, counts: tuple[int, ...], load: Load, rules: Rules | None = None) -> None:
        self.counts, self.load, self.rules = counts, load, rules or Rules()
        self.lineage = Lineage(linear_hashing.base_of(counts[0]), list(enumerate(counts)))
        self.partitions = range(max(counts))
        self.last = len(counts) - 1
        every = [one for p in self.partitions for one in self.lineage.key_epochs(p)]
        self.cut = [(one, following) for one in every if (following := self.lineage.next(one)) is not None]
        self.precedes = functools.cache(self._precedes)

    def initial(self) -> State:
        """Every partition of the first count has a leader; nothing was sent."""
        empty: tuple[tuple[Entry, ...], ...] = tuple(() for _ in self.partitions)
        return State(
            planned=0,
            published=0,
            adopted=tuple(0 if p < self.counts[0] else ABSENT for p in self.partitions),
            logs=empty,
            replicated=tuple(0 for _ in self.partitions),
            view=0,
            batches=(),
            network=tuple(() for _ in self.partitions),
            answers=(),
            lost_answers=self.load.lost_answers,
            failovers=self.load.failovers,
            ends=(),
        )

    def processes(self) -> list[Process[State]]:
        """All who do something."""
        return [
            self._controller,
            self._producer,
            self._transmission,
            self._leaders,
            self._failures,
            self._responses,
            self._readers,
            self._markers,
        ]

    def finished(self, state: State) -> bool:
        """All resizes are done, all records settled, and a transaction has its marker wherever it wrote."""
        settled = len(state.batches) == len(self.load.hashes) and all(b.status == "settled" for b in state.batches)
        marked = not self.load.transactional or all(not log or _marked(log) for log in state.logs)
        return state.planned == self.last and settled and marked

    # -- what may happen

    def _controller(self, state: State) -> Steps[State]:
        acknowledged = self.rules.adoption == "acknowledged"
        if state.planned < self.last and state.published == state.planned:
            plan = state.planned + 1
            begun = state._replace(planned=plan)
            yield (
                f"plan g{plan}: {self.counts[plan - 1]} -> {self.counts[plan]}",
                begun if acknowledged else self._created(begun)._replace(published=plan),
            )
        if not state.planned:
            return
        awaited = self._to_fence(state)
        for p in awaited:
            adopted = replaced(state.adopted, p, self.lineage.class_generation(p, state.planned))
            yield f"leader of p{p} adopts g{state.planned}", state._replace(adopted=adopted)
        if acknowledged and state.published < state.planned and not awaited:
            yield f"publish g{state.planned}", self._created(state)._replace(published=state.planned)

    def _to_fence(self, state: State) -> list[int]:
        targets = self.counts[state.planned]
        return [
            p
            for p in self.partitions
            if 0 <= state.adopted[p] < self._class(p, state.planned) and (p < targets or self.rules.fence_retiring)
        ]

    def _created(self, state: State) -> State:
        plan = state.planned
        new = self.counts[plan]
        return state._replace(
            adopted=tuple(plan if held == ABSENT and p < new else held for p, held in enumerate(state.adopted))
        )

    def _producer(self, state: State) -> Steps[State]:
        sent = len(state.batches)
        if sent < len(self.load.hashes):
            batch = Batch(sent, self._address(sent, state.view), state.view)
            yield f"send #{sent} to p{batch.partition}", state._replace(batches=(*state.batches, batch))
        for generation in range(state.view if self.rules.monotone_view else 0, state.published + 1):
            if generation != state.view:
                yield f"producer learns g{generation}", state._replace(view=generation)
        for batch in state.batches:
            older = batch.status == "queued" and batch.generation < state.view and self.rules.rehash
            if older and not (batch.doubtful and self.rules.resolve_in_place):
                yield f"re-hash #{batch.record} for g{state.view}", self._with(state, self._rehashed(state, batch))
            if batch.status == "in flight" and self.load.gives_up:
                yield f"give up #{batch.record}", self._with(state, batch._replace(status="settled"))

    def _transmission(self, state: State) -> Steps[State]:
        for batch in state.batches:
            if batch.status != "queued" or not self._may_transmit(state, batch):
                continue
            p = batch.partition
            carried = state.view if self.rules.generation_chosen_at == "request" else batch.generation
            network = replaced(state.network, p, (*state.network[p], (batch.record, carried)))
            moved = batch._replace(status="in flight", doubtful=True)
            yield f"transmit #{batch.record} to p{p} for g{carried}", self._with(state, moved)._replace(network=network)

    def _may_transmit(self, state: State, batch: Batch) -> bool:
        rules, here = self.rules, [one for one in state.batches if one.partition == batch.partition]
        if any(one.status == "queued" and one.record < batch.record for one in here):
            return False
        in_flight = sum(one.status == "in flight" for one in here)
        if in_flight >= IN_FLIGHT_MAX:
            return False
        if rules.first_batch_alone and in_flight and not any(one.status == "settled" for one in here):
            return False
        stale = self._class(batch.partition, batch.generation) < self._class(batch.partition, state.view)
        if rules.atomic_switch and rules.rehash and stale and not batch.doubtful:
            return False
        return not (rules.barrier and any(self._blocks(one, batch) for one in state.batches))

    def _blocks(self, older: Batch, batch: Batch) -> bool:
        if (
            older.record >= batch.record
            or older.status == "settled"
            or self._key_epoch(older) == self._key_epoch(batch)
        ):
            return False
        ours, theirs = self._held(batch), self._held(older)
        return ours is None or theirs is None or ours.overlaps(theirs)

    def _leaders(self, state: State) -> Steps[State]:
        for p in self.partitions:
            if not state.network[p] or state.adopted[p] == ABSENT:
                continue
            record, carried = state.network[p][0]
            verdict, log = self._judged(state, p, record, carried)
            network = replaced(state.network, p, state.network[p][1:])
            after = state._replace(network=network, logs=replaced(state.logs, p, log))
            if self.load.acks_all:
                after = after._replace(replicated=replaced(after.replicated, p, len(log)))
            told = f"p{p} answers {verdict} for #{record} (g{carried}, leader at g{state.adopted[p]})"
            yield told, after._replace(answers=(*state.answers, (record, verdict, p)))
            if state.lost_answers:
                lost = after._replace(answers=(*state.answers, (record, "unknown", p)))
                yield f"{told}, which is lost", lost._replace(lost_answers=state.lost_answers - 1)

    def _judged(self, state: State, p: int, record: int, carried: int) -> tuple[Verdict, tuple[Entry, ...]]:
        log = state.logs[p]
        stored = any(entry.record == record for entry in log)
        if stored and self.rules.duplicates_first:
            return "stored", log
        if not self._accepts(state, p, carried):
            return "behind" if state.adopted[p] <= carried else "refused", log
        if stored:
            return "stored", log
        known = {entry.record for entry in log}
        missing = any(
            one.record < record and one.partition == p and one.status != "settled" and one.record not in known
            for one in state.batches
        )
        if missing and log:
            return "gap", log  # a leader without state of this producer takes any first sequence
        return "stored", (*log, Entry(state.adopted[p], record))

    def _accepts(self, state: State, p: int, carried: int) -> bool:
        held = max(state.adopted) if self.rules.memory == "topic" else state.adopted[p]
        if not self.rules.fence_retiring and p >= self.counts[state.planned]:
            held = state.adopted[p]  # a retiring partition that was never told
        elif p >= self.counts[held]:
            return False
        if self.rules.check == "count":
            return self.counts[carried] == self.counts[held]
        return self._class(p, carried) == self._class(p, held)

    def _failures(self, state: State) -> Steps[State]:
        for p in self.partitions:
            log, replicated = state.logs[p], state.replicated[p]
            if not self.load.acks_all and replicated < len(log):
                caught_up = replaced(state.replicated, p, len(log))
                yield f"followers of p{p} catch up", state._replace(replicated=caught_up)
            if state.failovers and state.adopted[p] != ABSENT:
                unheard = tuple((record, "unknown", p) for record, _ in state.network[p])
                after = state._replace(
                    logs=replaced(state.logs, p, log[:replicated]),
                    network=replaced(state.network, p, ()),
                    answers=(*state.answers, *unheard),  # type: ignore[arg-type]
                    ends=tuple(one for one in state.ends if one[0].partition != p),
                    failovers=state.failovers - 1,
                )
                yield f"p{p} fails over, {len(log) - replicated} records were only with the old leader", after

    def _responses(self, state: State) -> Steps[State]:
        seen: set[int] = set()
        for place, (record, verdict, p) in enumerate(state.answers):
            if p in seen:
                continue  # answers of one connection come in order
            seen.add(p)
            rest = state._replace(answers=(*state.answers[:place], *state.answers[place + 1 :]))
            batch = state.batches[record]
            if batch.status == "settled":
                yield f"a late answer for #{record}", rest
            elif verdict == "stored":
                yield f"#{record} is acknowledged", self._with(rest, batch._replace(status="settled"))
            elif verdict in ("gap", "unknown", "behind"):
                yield f"#{record} is to be retried: {verdict}", self._with(rest, batch._replace(status="queued"))
            elif self.rules.rehash and state.view > batch.generation:
                yield f"#{record} is refused, re-hash it", self._with(rest, self._rehashed(state, batch))
            else:
                known = batch._replace(status="queued", doubtful=False)
                yield f"#{record} is refused, retry it", self._with(rest, known)

    def _readers(self, state: State) -> Steps[State]:
        known = {key_epoch for key_epoch, _ in state.ends}
        for key_epoch, following in self.cut:
            p = key_epoch.partition
            if state.adopted[p] == ABSENT or key_epoch in known:
                continue
            adopted = state.adopted[p] > key_epoch.generation
            if not adopted and (self.rules.boundary == "strict" or state.planned < following.generation):
                continue
            end = _end(state.logs[p], key_epoch) if adopted else len(state.logs[p])
            # Sorted: the order in which they were asked for makes no difference.
            told = tuple(sorted((*state.ends, (key_epoch, end))))
            yield f"{key_epoch} is said to end at {end}", state._replace(ends=told)

    def _markers(self, state: State) -> Steps[State]:
        ended = len(state.batches) == len(self.load.hashes) and all(b.status == "settled" for b in state.batches)
        if not self.load.transactional or not ended:
            return
        for p, log in enumerate(state.logs):
            sealed = p >= self.counts[max(state.adopted[p], 0)]
            if log and not _marked(log) and (self.rules.sealed_take_markers or not sealed):
                marked = (*log, Entry(state.adopted[p], MARKER))
                yield (
                    f"p{p} takes the transaction's marker",
                    state._replace(
                        logs=replaced(state.logs, p, marked),
                        replicated=replaced(state.replicated, p, len(marked)),
                    ),
                )

    # -- what must never be

    def violation(self, state: State) -> str | None:
        """Which invariant does not hold."""
        places: dict[int, tuple[KeyEpoch, int]] = {}
        for p, log in enumerate(state.logs):
            for offset, entry in enumerate(log):
                if entry.record == MARKER:
                    continue
                if entry.record in places:
                    return f"I6: #{entry.record} is stored twice, at {places[entry.record]} and p{p}:{offset}"
                places[entry.record] = (KeyEpoch(p, entry.generation), offset)
                if p != self._address(entry.record, entry.generation):
                    return f"I0: #{entry.record} is in {places[entry.record][0]}, where its key does not belong"
        for younger, (key_epoch, offset) in places.items():
            for older, (earlier, before) in places.items():
                if older >= younger or self.load.hashes[older] != self.load.hashes[younger]:
                    continue
                same = earlier.partition == key_epoch.partition and before < offset
                if not same and not self.precedes(earlier, key_epoch):
                    return f"I3: #{older} at {earlier}:{before} is not before #{younger} at {key_epoch}:{offset}"
        for key_epoch, end in state.ends:
            if _end(state.logs[key_epoch.partition], key_epoch) > end:
                return f"I2: {key_epoch} was said to end at {end}, and has grown since"
        return None

    def _precedes(self, earlier: KeyEpoch, later: KeyEpoch) -> bool:
        before = self.lineage.previous(later)
        sources = [*self.lineage.predecessors(later), *([before] if before else [])]
        return any(source == earlier or self.precedes(earlier, source) for source in sources)

    # -- helpers

    def _with(self, state: State, batch: Batch) -> State:
        return state._replace(batches=replaced(state.batches, batch.record, batch))

    def _rehashed(self, state: State, batch: Batch) -> Batch:
        return Batch(batch.record, self._address(batch.record, state.view), state.view)

    def _address(self, record: int, generation: int) -> int:
        return linear_hashing.address(self.load.hashes[record], self.lineage.base, self.counts[generation])

    def _class(self, partition: int, generation: int) -> int:
        known = [one for one in self.lineage.class_generations(partition) if one <= generation]
        return known[-1] if known else ABSENT

    def _key_epoch(self, batch: Batch) -> KeyEpoch:
        return KeyEpoch(batch.partition, self._class(batch.partition, batch.generation))

    def _held(self, batch: Batch) -> KeyClass | None:
        return linear_hashing.key_class(batch.partition, self.lineage.base, self.counts[batch.generation])


def without(**defects: object) -> Rules:
    """The repaired rules with some of them broken."""
    return replace(Rules(), **defects)  # type: ignore[arg-type]


def _end(log: tuple[Entry, ...], key_epoch: KeyEpoch) -> int:
    return sum(entry.generation <= key_epoch.generation for entry in log)


def _marked(log: tuple[Entry, ...]) -> bool:
    return any(entry.record == MARKER for entry in log)
