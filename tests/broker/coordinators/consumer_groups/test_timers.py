"""Timers of members: moved, cancelled, removed and expired."""

from __future__ import annotations

from anabranch.broker.coordinators.consumer_groups.timers import Timer, Timers


def test_postponed_timer_expires_at_the_later_time() -> None:
    timers = Timers()
    timers.set("a", Timer.SESSION, 100)
    timers.set("a", Timer.SESSION, 200)
    assert timers.first() == 100  # looked at, and found not to be over
    assert timers.pop_due(150) == [] and timers.first() == 200
    assert timers.pop_due(200) == [("a", Timer.SESSION)]


def test_set_if_absent_keeps_a_running_timer() -> None:
    timers = Timers()
    timers.set_if_absent("a", Timer.JOIN, 100)
    timers.set_if_absent("a", Timer.JOIN, 50)
    assert timers.due("a", Timer.JOIN) == 100


def test_cancelled_and_forgotten_timers_do_not_expire() -> None:
    timers = Timers()
    for timer in Timer:
        timers.set("a", timer, 100)
    timers.set("b", Timer.SESSION, 100)
    timers.cancel("a", Timer.SESSION)
    timers.cancel("a", Timer.SESSION)
    assert timers.due("a", Timer.SESSION) is None
    timers.forget("a")
    assert timers.pop_due(1000) == [("b", Timer.SESSION)]


def test_extend_never_shortens_a_timer() -> None:
    timers = Timers()
    timers.extend("a", Timer.SESSION, 100)
    timers.extend("a", Timer.SESSION, 50)
    assert timers.due("a", Timer.SESSION) == 100
    timers.extend("a", Timer.SESSION, 150)
    assert timers.due("a", Timer.SESSION) == 150
