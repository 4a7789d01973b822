"""An at-least-once Streams application: records may count twice after a crash, and none may be lost.

The schedules are those of `streaming`. After a crash a count may go back to what was stored and repeat itself, or jump
over what was counted and not told; in the end no key may be counted less often than it was sent. State that was lost on
its way, or old counts of an instance that was taken for dead, show in that.

    python -m tests.sim.streaming --repeats [SEED] [--schedules 300]
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from anabranch.clients.streams.config import AT_LEAST_ONCE
from tests.sim.streaming import Streaming


class Repeats(Streaming):
    """One such schedule."""

    def __init__(self, seed: int, directory: Path, *, resizes: bool = True) -> None:
        super().__init__(seed, directory, resizes=resizes)
        for instance in self.instances:
            instance.settings["processing_guarantee"] = AT_LEAST_ONCE

    def _complete(self, counted: Counter[bytes]) -> bool:
        return all(counted[key] >= sent for key, sent in self.feeder.sent.items())

    def _judge(self, key: bytes, count: int, counted: Counter[bytes]) -> None:
        self.cluster.fired["counted again"] += count <= counted[key]
        counted[key] = count
