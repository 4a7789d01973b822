"""An alert when a sensor has sent nothing for five seconds, and one when it sends again: a timer for each key.

    anabranch topics create readings --partitions 2
    anabranch topics create alerts --partitions 2
    anabranch streams examples/silence.py:topology --application-id silence --state-dir silence-state

A timer moves with its key when `readings` is resized, and each silence has one alert.
"""

from __future__ import annotations

from typing import Any, Final

from anabranch import JSON, Clock, Context, Handler, Timer, Topology

SILENT_AFTER_MS: Final = 5000


def reading(context: Context, key: bytes | None, value: Any, forward: Handler) -> None:
    """Start the time of a sensor again, and say that it is back if it was silent."""
    if key is None:
        return
    silent = context.store("silent")
    if silent.get(key) is not None:
        silent.put(key, None)
        forward(key, "back")
    context.timers("silence").set(key, context.now_ms + SILENT_AFTER_MS)


def silence(context: Context, key: bytes, due_ms: int, forward: Handler) -> None:
    """The time of a sensor has passed."""
    context.store("silent").put(key, b"")
    forward(key, "silent")


def topology() -> Topology:
    """The whole application."""
    application = Topology()
    readings = application.stream("readings", value=JSON)
    timer = Timer("silence", silence, Clock.WALL_CLOCK_TIME)
    readings.process(reading, stores=["silent"], timers=[timer]).to("alerts")
    return application
