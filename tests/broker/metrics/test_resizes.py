"""Resizes are counted over all tenures of a controller."""

from __future__ import annotations

from anabranch.broker.metrics.resizes import Resizes
from anabranch.controller.runner import ControllerEvent


def event(kind: str, at_s: float, topic: str = "") -> ControllerEvent:
    return ControllerEvent(kind, at_s, 1, 1, {"topic": topic} if topic else {})


def test_age_of_a_resize_plan_grows_until_its_publication() -> None:
    resizes = Resizes(5.0)
    for one in (event("elected", 10), event("resize planned", 20, "a"), event("resize planned", 25, "b")):
        resizes.on_event(one)
    resizes.on_event(event("resize fenced", 26, "a"))
    assert (resizes.planned, resizes.published) == (2, 0)
    assert dict(resizes.ages_s(["a", "b"], 30)) == {"a": 10, "b": 5}
    resizes.on_event(event("resize published", 31, "a"))
    assert (resizes.planned, resizes.published) == (2, 1)
    assert dict(resizes.ages_s(["b"], 40)) == {"b": 15}


def test_age_of_a_predecessors_plan_starts_at_the_failover() -> None:
    resizes = Resizes(5.0)
    assert dict(resizes.ages_s(["a"], 8)) == {"a": 3}
    resizes.on_event(event("resize planned", 10, "a"))
    resizes.on_event(event("elected", 100))  # somebody else was in office meanwhile: who knows what became of "a"
    assert dict(resizes.ages_s(["a"], 103)) == {"a": 3}
