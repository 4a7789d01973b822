"""The faults of a chaos run: each injects a failure, ends it, and returns a description.

A fault chooses its target by role (`scene`). It repairs in `finally`, so a run that ends early leaves nothing behind.
The run counts faults with an effect: a fault without a target or an effect returns None, or raises ActionRefused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.chaos import client_faults, node_faults
from anabranch.chaos.fault_table import FaultTable

FAULTS: Final = FaultTable({**node_faults.FAULTS, **client_faults.FAULTS})


@dataclass
class Fired:
    """One fault that happened; both times are of the event loop's clock, in seconds."""

    name: str
    what: str
    started_s: float
    ended_s: float
