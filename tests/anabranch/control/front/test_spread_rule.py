"""Who decides about a rule, which nodes it is about, and what is known of it when nodes end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from anabranch.control.front.spread_rule import SpreadRule, is_about, is_decided_by_front, refuse_unsupported
from anabranch.faults.active_rule import ActiveRule
from anabranch.faults.rule import Rule
from anabranch.faults.rule_json import InvalidRule

if TYPE_CHECKING:
    from anabranch.faults.active_rule import RuleRow


def spread(**fields: Any) -> SpreadRule:
    one = SpreadRule(ActiveRule(Rule(**fields), lambda armed, what: None), (1, 2, 3))
    one.applied.update(one.nodes)
    return one


def counts(met: int, hits: int, held: int = 0) -> RuleRow:
    return cast("RuleRow", {"met": met, "hits": hits, "held": held})


@pytest.mark.parametrize(
    "fields",
    [{"times": 1}, {"after": 1}, {"every": 2}, {"probability": 0.5}, {"while_rule": "other"}, {"node": "kill"}],
)
def test_front_decides_about_rules_that_count_or_act_on_nodes(fields: dict[str, Any]) -> None:
    assert is_decided_by_front(Rule(api=("Produce",), **fields))
    assert not is_decided_by_front(Rule(step=("elect",), **fields))
    assert not is_decided_by_front(Rule(disk="full", **fields))


def test_nodes_decide_about_rules_that_hit_every_request() -> None:
    assert not is_decided_by_front(Rule(api=("Produce",), error="REQUEST_TIMED_OUT", until="5s"))


def test_rule_is_about_its_brokers_and_the_ends_of_its_links() -> None:
    nodes = (1, 2, 3)
    assert [is_about(Rule(brokers=(2,)), one) for one in nodes] == [False, True, False]
    assert [is_about(Rule(link=("1:2",)), one) for one in nodes] == [True, True, False]
    assert [is_about(Rule(link=("*:2",)), one) for one in nodes] == [True, True, True]
    assert [is_about(Rule(api=("Produce",)), one) for one in nodes] == [True, True, True]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"step": ("elect",), "node": "expire"}, "leave out node=expire"),
        ({"step": ("elect",), "node": "kill", "on": (2,)}, "leave out on"),
    ],
)
def test_what_processes_cannot_do_is_refused_with_the_reason(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRule, match=reason):
        refuse_unsupported(Rule(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"api": ("Produce",), "node": "expire"},
        {"api": ("Produce",), "node": "suspend"},
        {"api": ("Produce",), "node": "start", "on": (2,)},
        {"step": ("elect",), "node": "freeze"},
        {"step": ("elect",), "elect": "preferred", "topic": ("t",), "partition": (0,)},
    ],
)
def test_other_actions_are_possible(fields: dict[str, Any]) -> None:
    refuse_unsupported(Rule(**fields))


def test_counts_of_nodes_are_added_up_and_those_of_ended_processes_stay() -> None:
    one = spread(name="r", api=("Produce",), delay_ms=(1.0,))
    one.on_report(1, counts(5, 3, held=1))
    one.on_report(2, counts(2, 2, held=2))
    row = one.row()
    assert (row["met"], row["hits"], row["held"]) == (7, 5, 3)
    one.on_unlinked(1)
    row = one.row()
    assert (row["met"], row["hits"], row["held"], row["waiting_for"]) == (7, 5, 2, [1])
    one.on_replaced(1)
    one.applied.add(1)
    one.on_report(1, counts(1, 1))
    assert (one.row()["hits"], "waiting_for" in one.row()) == (6, False)


def test_rule_whose_hits_are_used_up_on_all_nodes_together_is_spent_and_waits_for_none() -> None:
    one = spread(name="r", disk="full", times=3)
    one.on_report(1, counts(2, 2))
    assert not one.spent
    one.on_report(2, counts(1, 1))
    one.on_unlinked(2)
    assert one.spent and "waiting_for" not in one.row()


def test_hit_that_a_node_reported_before_its_end_counts_once() -> None:
    one = spread(name="r", step=("elect",), node="kill", times=2)
    one.hit(1)
    assert (one.hits, one.met) == (1, 1)
    one.on_report(1, counts(1, 1))
    assert one.hits == 1, "the row and the event are about the same hit"
    one.on_unlinked(1)
    assert (one.hits, one.waiting_for) == (1, [1])
    one.on_report(1, counts(1, 1))
    assert one.hits == 1, "the same process was linked again"
    one.on_replaced(1)
    one.on_replaced(1)
    assert (one.hits, one.spent) == (1, False)
    one.hit(2)
    assert one.spent
