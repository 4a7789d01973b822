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
    "elect-preferred": "leadership handed back to preferred replicas",
    "elect-unclean": "leaders out of sync, because an admin asked for leaders at any price",
    "lose": "a lost broker, or a replica whose disk failed, out of leaderships and ISRs",
    "shut-down": "leaderships moved off a broker that stops in order",
    "isr": "an ISR that a leader asked for",
    "mark": "that a topic has batches with generations",
    "complete": "a topic's znode filled in with what its creator left out",
    "grow": "more partitions for a topic that is not ordered",
    "resize:after-plan": "the plan of a resize in the topic's znode",
    "resize:after-create": "the children of a resize that grows",
    "resize:after-seal": "the retiring partitions of a resize that shrinks, sealed",
    "resize:after-bump": "the other partitions whose keys change, in their next epoch and generation",
    "resize:after-publish": "the new generation in the topic's znode",
    "remove:after-retire": "the tombstone of a drained partition",
    "remove:after-remove": "a drained partition's state and index gone",
    "reassign:after-begin": "replicas on their way, in the topic's znode and the partitions' states",
    "reassign:after-complete": "replicas that have arrived alone in the topic's znode and the partitions' states",
    "delete-partitions": "the states of some partitions of a topic that goes, gone",
    "delete-topic": "a topic's znodes gone",
    "remove-deletion": "the request to delete a topic gone",
    "send": "a request in a broker's queue",
    "resign": "/controller given back",
    "make-room": "the parent of a topic's partitions",
    "first-features": "/feature of a new cluster",
    "update-features": "/feature, because an admin asked for other levels",
    "allocate-producer-ids": "a block of producer ids, which a broker asked for",
    "vacate": "/controller of a term that had ended given back",
}


def step_of(point: str) -> str:
    """Return the step of a point: `resize:after-bump:2` belongs to `resize:after-bump`. Raises KeyError."""
    step, _, count = point.rpartition(":")
    name = step if count.isdigit() else point
    if name not in STEPS:
        raise KeyError(f"{point!r} is no step of the controller; there are {', '.join(STEPS)}")
    return name
