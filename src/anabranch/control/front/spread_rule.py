"""One fault rule on several nodes: who counts its hits, which nodes have it, and its merged row.

A rule that counts (`times`, `after`, `every`, `probability`, `while_rule`) or that acts on a node is decided by the
front: each node asks for every matching request, so `times=2` means two in all. A rule without these is decided in the
nodes, and its counts are added up. Rules about steps and disks are decided in the nodes, too, as a controller cannot
wait there; the front removes such a rule when its hits are used up, and two nodes may both hit before that.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from anabranch.faults.matching import ANY, ends_of
from anabranch.faults.rule import FREEZE, KILL, about_requests
from anabranch.faults.rule_json import InvalidRule

if TYPE_CHECKING:
    from anabranch.faults.active_rule import ActiveRule, RuleRow
    from anabranch.faults.rule import Rule

OWN_ACTIONS: Final = (KILL, "stop", FREEZE)
"""The actions that a node applies to its own process at the moment of the hit."""
NO_SUSPEND: Final = (
    "a process cannot be disconnected from ZooKeeper from outside; use node=freeze, or node=expire for its session"
)
AT_A_STEP: Final = (
    "a step is decided in its node, where only kill, stop and freeze of that node are possible: leave out {field}"
)


def refuse_unsupported(rule: Rule) -> None:
    """Raise InvalidRule if a rule is not possible in a cluster of processes."""
    if rule.node == "suspend":
        raise InvalidRule(NO_SUSPEND)
    if rule.step and rule.node and rule.node not in OWN_ACTIONS:
        raise InvalidRule(AT_A_STEP.format(field=f"node={rule.node}"))
    if rule.step and rule.on:
        raise InvalidRule(AT_A_STEP.format(field="on"))


def is_decided_by_front(rule: Rule) -> bool:
    """Whether the front decides for each matching request whether it is hit."""
    counts = rule.times or rule.after or rule.every != 1 or rule.probability < 1 or rule.while_rule
    return about_requests(rule) and bool(counts or rule.node)


def is_about(rule: Rule, node_id: int) -> bool:
    """Whether a rule is about a node."""
    if rule.brokers and node_id not in rule.brokers:
        return False
    return not rule.link or any({ANY, str(node_id)} & set(ends_of(link)) for link in rule.link)


class SpreadRule:
    """A rule, and what is known of it on each node."""

    def __init__(self, armed: ActiveRule, node_ids: Collection[int]) -> None:
        self.armed = armed
        self.decided = is_decided_by_front(armed.rule)
        self.nodes = tuple(one for one in node_ids if is_about(armed.rule, one))
        """The nodes that the rule is about."""
        self.applied: set[int] = set()
        """The nodes that have it now."""
        self.released = False
        self.delivered = 0
        """The hits that the front decided, and whose nodes know it."""
        self.reports = 0
        """The hits that nodes have reported as events."""
        self._rows: dict[int, RuleRow] = {}
        self._met = self._hits = 0
        """The counts of processes that have ended."""

    @property
    def hits(self) -> int:
        """The hits on all nodes."""
        return self.armed.hits if self.decided else self._hits + sum(row["hits"] for row in self._rows.values())

    @property
    def met(self) -> int:
        """The matches on all nodes."""
        return self.armed.met if self.decided else self._met + sum(row["met"] for row in self._rows.values())

    @property
    def spent(self) -> bool:
        """Whether it was removed, or has used up its hits or its time."""
        times = self.armed.rule.times
        return self.armed.spent or bool(times and self.hits >= times)

    @property
    def waiting_for(self) -> list[int]:
        """The nodes that are to get the rule when they return."""
        return [] if self.spent else [one for one in self.nodes if one not in self.applied]

    def reported(self, node_id: int, row: RuleRow) -> None:
        """Take the row that a node reports."""
        self._rows[node_id] = row

    def lost(self, node_id: int, *, killed: bool = False) -> bool:
        """A node has ended. Returns whether this rule has `killed` it: its last hit was not reported."""
        if node_id not in self.applied:
            return False
        self.applied.discard(node_id)
        row = self._rows.pop(node_id, None)
        if row is not None:
            self._met += row["met"]
            self._hits += row["hits"]
        rule = self.armed.rule
        if not killed or not rule.step or rule.node != KILL or self.spent:
            return False
        self._met += 1
        self._hits += 1
        return True

    def row(self) -> RuleRow:
        """The merged row."""
        row: RuleRow = {
            **self.armed.row(),
            "met": self.met,
            "hits": self.hits,
            "held": sum(row["held"] for row in self._rows.values()),
            "spent": self.spent,
        }
        if waiting := self.waiting_for:
            row["waiting_for"] = waiting
        return row
