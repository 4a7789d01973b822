"""The failpoints of coordinators: named steps after which the process can be made to crash.

`crash_at=NAME` ends the process right after the step. The table has every step whose effect outlives the process, so a
test can crash after each one in a loop. The controller's steps are in `controller.failpoints`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Final

log: Final = logging.getLogger(__name__)

CRASH_STATUS: Final = 137

STEPS: Final[Mapping[str, str]] = {
    "txn:after-init": "a producer's epoch in the journal",
    "txn:after-add": "more partitions of a transaction in the journal",
    "txn:after-prepare": "the decision in the journal",
    "txn:after-some-markers": "a marker in some of the partitions",
    "txn:after-markers": "a marker in every partition",
    "txn:after-complete": "the end of a transaction in the journal",
}


def crashing_at(step: str) -> Callable[[str], None] | None:
    """Return the callback that ends this process at a step; None if no coordinator has this step."""
    if step not in STEPS:
        return None

    def reached(point: str) -> None:
        if point == step:
            log.error("the coordinator crashes at failpoint %s", step)
            os._exit(CRASH_STATUS)

    return reached
