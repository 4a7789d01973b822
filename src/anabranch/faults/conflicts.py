"""Finds the rules that matched a request, but whose effect another rule overrode. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from anabranch.faults.matching import Matcher
from anabranch.faults.rule import KILL, is_set

if TYPE_CHECKING:
    from anabranch.faults.request_fields import Row
    from anabranch.faults.rule import Rule

OF_ANSWERS: Final = ("error", "throttle_ms", "edit", "truncate", "corrupt", "wrong_correlation_id", "drip")
ONE_OF: Final = ("error", "throttle_ms", "corrupt")
"""Properties of a response that only one rule can set."""


def ends_exchange(rule: Rule) -> bool:
    """Whether a request gets no response after this rule."""
    killed = rule.node == KILL and not rule.on
    return rule.silence or rule.half_open or rule.disconnect in ("before", "after") or killed


def overridden_rules(rules: Sequence[Rule], rows: Collection[Row]) -> list[str]:
    """The names of rules that hit without effect; `rules` are in their order of evaluation.

    A rule that ends the request overrides the rules around it. Otherwise the first rule, which is the outermost,
    prevails in the rows that it matches.
    """
    ends = [one for one in rules if ends_exchange(one)]
    if ends:
        winner = ends[-1]
        return [one.name for one in rules if one is not winner and (ends_exchange(one) or action_of(one))]
    return [
        rule.name for place, rule in enumerate(rules) if any(_contradicts(one, rule, rows) for one in rules[:place])
    ]


def action_of(rule: Rule) -> bool:
    """Whether a rule changes the response."""
    return any(is_set(rule, one) for one in OF_ANSWERS) or rule.disconnect == "middle"


def _contradicts(outer: Rule, inner: Rule, rows: Collection[Row]) -> bool:
    both = any(is_set(outer, one) and is_set(inner, one) for one in ONE_OF)
    if not both and not (outer.edit.keys() & inner.edit.keys()):
        return False
    first, second = Matcher(outer), Matcher(inner)
    return any(first.matches(row) and second.matches(row) for row in rows)
