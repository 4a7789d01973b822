"""A rule hits when it is due, reports hits, and releases what it holds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.faults.active_rule import ActiveRule, Decision
from anabranch.faults.matching import RequestView
from anabranch.faults.rule import Rule
from tests.anabranch.faults.samples import PEER, SURROUNDINGS, armed, by_name

VIEW = RequestView(by_name("Heartbeat", 4), PEER, 0, SURROUNDINGS)


def hits(count: int, **said: Any) -> str:
    rule = armed(**said)
    return "".join("x" if rule.hit(VIEW) else "." for _ in range(count))


def test_skip_times_and_probability_select_requests() -> None:
    assert hits(4) == "xxxx"
    assert hits(4, times=2) == "xx.."
    assert hits(5, after=2, times=1) == "..x.."
    assert hits(7, every=3) == "x..x..x"
    assert hits(8, after=1, every=2, times=2) == ".x.x...."


def test_probability_depends_on_seed() -> None:
    first = hits(200, probability=0.5, seed=1)
    assert first == hits(200, probability=0.5, seed=1) != hits(200, probability=0.5, seed=2)
    assert 60 < first.count("x") < 140


def test_delays_are_fixed_or_random() -> None:
    assert armed().delay_s() == 0
    assert armed(delay_ms=(50.0,)).delay_s() == 0.05
    drawn = armed(delay_ms=(10.0, 20.0), seed=3)
    assert all(0.01 <= drawn.delay_s() <= 0.02 for _ in range(50))
    assert drawn.delay_s() != drawn.delay_s()


def test_delays_follow_quantiles() -> None:
    rule = armed(delay_ms=(0.0, 10.0, 20.0, 1000.0, 1000.0), seed=3)
    drawn = sorted(rule.delay_s() for _ in range(400))
    assert drawn[0] >= 0 and drawn[-1] == 1
    assert drawn[60] < 0.01 < drawn[140] and drawn[160] < 0.02 < drawn[240] and drawn[340] == 1


async def test_rule_expires_after_its_time() -> None:
    rule = armed(until="20ms")
    assert rule.hit(VIEW), "its time begins when a broker follows it"
    rule.activate()
    assert rule.hit(VIEW) and not rule.spent
    await asyncio.sleep(0.021)
    rule.activate()
    assert rule.spent and not rule.hit(VIEW) and rule.hits == 2


def test_rule_depends_on_another_rule() -> None:
    there: set[str] = set()
    rule = ActiveRule(Rule(name="second", while_rule="first"), lambda *_: None, lambda name: name in there)
    assert not rule.hit(VIEW) and rule.met == 0
    there.add("first")
    assert rule.hit(VIEW)
    there.clear()
    assert not rule.hit(VIEW) and (rule.met, rule.hits) == (1, 1)


async def test_hits_are_awaited() -> None:
    rule = armed()
    waiting = asyncio.create_task(rule.wait_hit(2))
    rule.hit(VIEW)
    await asyncio.sleep(0)
    assert not waiting.done()
    rule.hit(VIEW)
    await waiting
    with pytest.raises(TimeoutError, match="after 0 s rule test has hit 2 of 2 matching requests"):
        await rule.wait_hit(3, timeout_s=0)
    with pytest.raises(TimeoutError, match="rule test matched no request"):
        await armed().wait_hit(timeout_s=0)


async def test_barrier_opens_once_for_all() -> None:
    rule = armed(hold=True)
    held = [asyncio.create_task(rule.pass_barrier()) for _ in range(2)]
    await asyncio.sleep(0)
    assert rule.held == 2 and rule.row()["held"] == 2
    rule.release()
    await asyncio.gather(*held)
    await rule.pass_barrier()
    assert rule.held == 0


@pytest.mark.parametrize("deed", ["remove", "hit"])
async def test_wait_for_a_hit_that_cannot_come_ends_at_once(deed: str) -> None:
    rule = armed(hold=True, times=1)
    waiting = asyncio.create_task(rule.wait_hit(2))
    await asyncio.sleep(0)
    if deed == "remove":
        rule.remove()
    else:
        rule.hit(VIEW)
    with pytest.raises(TimeoutError, match=r"rule .* (matched no request|has hit 1 of 1 .*), and can hit no more"):
        await asyncio.wait_for(waiting, 5)


async def test_held_request_may_be_cancelled() -> None:
    rule = armed(hold=True)
    first, second = (asyncio.create_task(rule.pass_barrier()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    assert rule.held == 1
    rule.release()
    await second


async def test_removed_rule_hits_and_holds_nothing() -> None:
    rule, told = armed(hold=True, times=5), []
    rule.on_removal(lambda: told.append("before"))
    held = asyncio.create_task(rule.pass_barrier())
    await asyncio.sleep(0)
    rule.remove()
    await held
    rule.on_removal(lambda: told.append("after"))
    assert rule.spent and not rule.hit(VIEW) and told == ["before", "after"]
    said = {"name": "test", "hold": True, "times": 5}
    assert rule.row() == {"name": "test", "rule": said, "met": 1, "hits": 0, "held": 0, "spent": True, "removed": True}
    assert repr(rule) == "<rule test: met 1, hits 0>"


async def test_rule_that_is_decided_elsewhere_leaves_its_counts_to_the_decision() -> None:
    decisions = [Decision(hit=False), Decision(hit=True), Decision(hit=True, spent=True)]

    async def decide(rule: ActiveRule, view: RequestView) -> Decision:
        return decisions.pop(0)

    rule = armed(decide=decide, times=1, after=5)
    assert [await rule.decide_remotely(VIEW), await rule.decide_remotely(VIEW)] == [False, True]
    assert not rule.spent, "the hits of this node are not all"
    assert await rule.decide_remotely(VIEW) and rule.spent
    assert (rule.met, rule.hits) == (3, 2)


async def test_rule_that_is_removed_during_a_decision_does_not_hit() -> None:
    async def decide(rule: ActiveRule, view: RequestView) -> Decision:
        rule.remove()
        return Decision(hit=True)

    rule = armed(decide=decide, hold=True)
    assert not await rule.decide_remotely(VIEW) and rule.hits == 0
