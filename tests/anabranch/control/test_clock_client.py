"""A blocking test advances the clock of a cluster in another process, and waits while it is stopped."""

from __future__ import annotations

import pytest

from anabranch.control.client import ControlClient, ControlError
from tests.anabranch.control.test_client import control  # noqa: F401


def test_clock_is_advanced_stopped_and_resumed(control: ControlClient) -> None:  # noqa: F811
    clock = control.clock
    before = clock.time_ms
    clock.advance("2h")
    assert clock.time_ms >= before + 7_200_000 and clock.pace == 1
    with clock.stopped():
        stands = clock.time_ms
        control.create_topic("still", 3)
        with pytest.raises(ControlError, match=r"after 0.01 s the ISR of still-0 is"):
            control.wait_for(topic="still", isr="9", timeout_s=0.01)
        control.ask("DELETE", "/v1/topics/still")
        with control.faults(api="DeleteTopics", hold=True, optional=True) as rule, pytest.raises(ControlError):
            rule.wait_hit(timeout_s=0.01)
        assert clock.time_ms == stands and clock.pace == 0
        clock.advance(0.5)
        assert clock.time_ms == stands + 500
    clock.run(10)
    assert clock.row()["pace"] == 10
    clock.run()
    told = [one for one in control.events() if one["kind"] == "clock"]
    assert (told[0]["advanced_s"], told[1]["pace"]) == (7200, 0)


def test_invalid_clock_changes_are_refused(control: ControlClient) -> None:  # noqa: F811
    for body, reason in [
        ({"advance": "5 parsecs"}, "such as 45s"),
        ({"advance": -1}, "a span of time is 0 seconds to 100 years, not -1"),
        ({"pace": "fast"}, "pace is a number"),
        ({"pace": -1}, "0 or more"),
        ({"skip": "1s"}, "the body has no 'skip'; there are advance, pace"),
        ({}, "send"),
    ]:
        with pytest.raises(ControlError, match=reason) as refused:
            control.ask("POST", "/v1/clock", body)
        assert refused.value.status == 400
