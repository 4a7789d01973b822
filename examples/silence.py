"""An alert when a sensor has sent nothing for an hour, and one when it sends again: a timer for each key.

anabranch streams examples/silence.py:topology --application-id silence --state-dir /tmp/silence
"""

from __future__ import annotations

from typing import Any

from anabranch import JSON, Clock, Context, Handler, Timer, Topology

HOUR_MS = 3_600_000


def reading(context: Context, key: bytes | None, value: Any, forward: Handler) -> None:
    """Start the hour of a sensor again, and say that it is back if it was silent."""
    if key is None:
        return
    silent = context.store("silent")
    if silent.get(key) is not None:
        silent.put(key, None)
        forward(key, "back")
    context.timers("silence").set(key, context.now_ms + HOUR_MS)


def silence(context: Context, key: bytes, due_ms: int, forward: Handler) -> None:
    """The hour of a sensor has passed."""
    context.store("silent").put(key, b"")
    forward(key, "silent")


def topology() -> Topology:
    """The whole application."""
    application = Topology()
    readings = application.stream("readings", value=JSON)
    timer = Timer("silence", silence, Clock.WALL_CLOCK_TIME)
    readings.process(reading, stores=["silent"], timers=[timer]).to("alerts")
    return application
