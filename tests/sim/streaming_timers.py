"""Timers of keys in a Streams application: each silence of a key is said once, with the count that it had then.

The schedules are those of `streaming`. The application also sets a timer for each record; when it is due, the negative
count goes to the output. So the output of a key is 1, 2, -2, 3, ..., -n: a timer that is lost leaves out the last one,
one that fires twice repeats it, and one that stays behind in a resize has another count or comes too late.

    python -m tests.sim.streaming --timers [SEED] [--schedules 300]
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from anabranch.clients.streams.context import Clock, Context, Handler, Timer
from anabranch.clients.streams.topology import Topology
from tests.sim.streaming import INPUT, OUTPUT, Streaming

SILENCES_MS = (200, 1000, 3000)


class Timers(Streaming):
    """One such schedule."""

    def __init__(self, seed: int, directory: Path, *, resizes: bool = True) -> None:
        super().__init__(seed, directory, resizes=resizes)
        self.silence_ms = self.rng.choice(SILENCES_MS)
        self.said: Counter[bytes] = Counter()
        """The last silence of each key, by the count that it had."""
        for instance in self.instances:
            instance.topology = self.watching

    def watching(self) -> Topology:
        """Count records, and say silences."""

        def count(context: Context, key: bytes | None, value: Any, forward: Handler) -> None:
            assert key is not None
            counts = context.store("counts")
            counted = int(counts.get(key) or b"0") + 1
            counts.put(key, b"%d" % counted)
            context.timers("silence").set(key, context.now_ms + self.silence_ms)
            forward(key, counted)

        def say(context: Context, key: bytes, due_ms: int, forward: Handler) -> None:
            forward(key, -int(context.store("counts").get(key) or b"0"))

        topology = Topology()
        silence = Timer("silence", say, Clock.WALL_CLOCK_TIME)
        topology.stream(INPUT).process(count, stores=["counts"], timers=[silence]).to(OUTPUT)
        return topology

    def _complete(self, counted: Counter[bytes]) -> bool:
        return counted == self.feeder.sent == self.said

    def _judge(self, key: bytes, count: int, counted: Counter[bytes]) -> None:
        if count > 0:
            super()._judge(key, count, counted)
            return
        self.cluster.fired["silences"] += 1
        if -count != counted[key] or -count == self.said[key]:
            said = f"{key.decode()} is silent after {-count}"
            self.violations.append(f"{said}, when its count is {counted[key]}; the last time was at {self.said[key]}")
        self.said[key] = -count
