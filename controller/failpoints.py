"""The named steps at which a controller can be made to crash, one for each lasting change.

`crash_at=NAME` ends the process right after the step; `NAME:2` after the second partition of a step that writes
several. Every write needs the name of a step in this table (`fenced_writes`), so a loop over it kills the controller
after each step. Preparations that any node may do (empty parent znodes, the first epoch) are not steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

STEPS: Final[Mapping[str, str]] = {
    "elect-controller": "/controller is ours, /controller_epoch raised",
    "create": "first states of a topic's partitions",
    "elect": "a leader for partitions that had none",
    "elect-preferred": "preferred replicas elected",
    "elect-unclean": "leaders out of sync, because of an unclean election request",
    "lose": "a lost broker, or a replica whose disk failed, out of leaderships and ISRs",
    "shut-down": "leaderships moved off a broker in controlled shutdown",
    "isr": "an ISR change of a leader",
    "mark": "the mark of a topic that has batches with generations",
    "complete": "a topic's znode completed after its creation by another tool",
    "grow": "more partitions for a topic that is not ordered",
    "resize:after-plan": "the plan of a resize in the topic's znode",
    "resize:after-create": "the children of a resize that grows",
    "resize:after-seal": "the retiring partitions of a resize that shrinks, sealed",
    "resize:after-bump": "the other partitions whose keys change, in their next epoch and generation",
    "resize:after-publish": "the new generation in the topic's znode",
    "remove:after-retire": "the tombstone of a drained partition",
    "remove:after-remove": "a drained partition's state and index removed",
    "reassign:after-begin": "the begin of reassignments, in the topic's znode and the partitions' states",
    "reassign:after-complete": "the completion of reassignments, in the topic's znode and the partitions' states",
    "delete-partitions": "the states of some partitions of a deleted topic removed",
    "delete-topic": "a topic's znodes removed",
    "remove-deletion": "the request to delete a topic removed",
    "send": "a request in a broker's queue",
    "resign": "/controller released",
    "make-room": "the parent of a topic's partitions",
    "first-features": "/feature of a new cluster",
    "update-features": "/feature with other levels, after UpdateFeatures",
    "allocate-producer-ids": "a block of producer ids for a broker",
    "vacate": "/controller of an ended tenure released",
}


def step_of(point: str) -> str:
    """Return the step of a point: `resize:after-bump:2` belongs to `resize:after-bump`. Raises KeyError."""
    step, _, count = point.rpartition(":")
    name = step if count.isdigit() else point
    if name not in STEPS:
        raise KeyError(f"{point!r} is not a step of the controller; the steps are {', '.join(STEPS)}")
    return name
