"""Defects of the controller's steps, their order and their results; see `defects`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch.controller import partitions, requests, resize
from tests.sim.defects import defect
from tests.sim.planted import Planter


@defect("K304", "partitions that are merged away are not fenced")
def retiring_not_fenced(planter: Planter) -> None:
    def phases(body: Any) -> Any:
        return (phase for phase in original(body) if not phase.sealed)

    original = planter.replace(resize, "phases", phases)


@defect("K205", "every partition of the topic is fenced")
def everything_fenced(planter: Planter) -> None:
    def phases(body: Any) -> Any:
        for phase in original(body):
            if phase.label == "bump":
                phase = replace(phase, indices=tuple(range(min(body.plan.before, body.plan.after))))
            yield phase

    original = planter.replace(resize, "phases", phases)


@defect("K307, R2", "a partition changes its generation within a leader epoch")
def same_epoch(planter: Planter) -> None:
    def bumped(committed: Any, generation: int, **options: Any) -> Any:
        after = original(committed, generation, **options)
        epoch = committed.state.leader_epoch
        return replace(after, leader_epoch=epoch, gen_start=(*after.gen_start[:-1], (generation, epoch)))

    original = planter.replace(resize, "bump_generation", bumped)


@defect("K301, K303", "the epoch of a cut is remembered one too high")
def cut_too_high(planter: Planter) -> None:
    def bumped(committed: Any, generation: int, **options: Any) -> Any:
        after = original(committed, generation, **options)
        return replace(after, gen_start=(*after.gen_start[:-1], (generation, after.leader_epoch + 1)))

    original = planter.replace(resize, "bump_generation", bumped)


@defect("K305, K306", "a successor takes partitions that it finds for bumped")
def found_is_bumped(planter: Planter) -> None:
    def serves(state: Any, partition: Any, generation: int) -> bool:
        committed = state.partitions.get(partition)
        if committed is not None and committed.state.controller_epoch < state.controller_epoch:
            return True
        return bool(original(state, partition, generation))

    original = planter.replace(resize, "serves", serves)
    planter.replace(resize, "all_adopted", lambda state, topic, indices: True)


@defect("R3", "a plan is forgotten with its controller")
def plan_forgotten(planter: Planter) -> None:
    planned_in: dict[tuple[bytes, int], int] = {}

    def advance(state: Any, name: str) -> Any:
        topic = state.topics.get(name)
        if topic is not None and topic.body.plan is not None:
            plan = (topic.body.topic_id, topic.body.plan.generation)
            if planned_in.setdefault(plan, state.controller_epoch) != state.controller_epoch:
                return []
        return original(state, name)

    original = planter.replace(resize, "advance", advance)


@defect("K313", "a drained partition is removed while records are left in it")
def removed_with_records(planter: Planter) -> None:
    def offset_reported(state: Any, partition: Any, leader_epoch: int, *, timestamp: int, offset: int) -> Any:
        if timestamp == resize.LATEST and partition in state.log_starts:
            state.log_starts[partition] = (leader_epoch, offset)
        return original(state, partition, leader_epoch, timestamp=timestamp, offset=offset)

    original = planter.replace(resize, "offset_reported", offset_reported)


@defect("K701, R13", "an index that is used again begins with epoch 0 and offset 0")
def index_from_zero(planter: Planter) -> None:
    def birth(topic: Any, index: int, *rest: Any, **options: Any) -> Any:
        return original(replace(topic, body=replace(topic.body, retired={})), index, *rest, **options)

    def leadership(*args: Any, **options: Any) -> Any:
        row = original_leadership(*args, **options)
        row.log_start_offset = -1
        return row

    original = planter.replace(partitions, "initial_state", birth)
    original_leadership = planter.replace(requests, "_leadership", leadership)
