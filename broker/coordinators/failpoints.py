"""The steps at which a coordinator can be made to die: one name for everything it does that outlives it.

A step that is not in this table does not exist, so "killed after each step" is a loop over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

STEPS: Final[Mapping[str, str]] = {
    "txn:after-init": "a producer's epoch in the journal",
    "txn:after-add": "more partitions of a transaction in the journal",
    "txn:after-prepare": "the decision in the journal",
    "txn:after-some-markers": "a marker in some of the partitions",
    "txn:after-markers": "a marker in every partition",
    "txn:after-complete": "the end of a transaction in the journal",
}
