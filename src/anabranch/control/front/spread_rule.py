"""One fault rule on several nodes: where its hits are counted, which nodes have it, and its merged row.

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
AT_A_STEP: Final = (
    "a step is decided in its node, where only kill, stop and freeze of that node are possible: leave out {field}"
)


def refuse_unsupported(rule: Rule) -> None:
    """Raise InvalidRule if a rule is not possible in a cluster of processes."""
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

    def __init__(self, armed: ActiveRule, node_ids: Collection[int], since_s: float = 0.0) -> None:
        self.armed = armed
        self.since_s = since_s
        """When it was added: earlier hits belong to an earlier rule of the same name."""
        self.decided = is_decided_by_front(armed.rule)
        self.nodes = tuple(one for one in node_ids if is_about(armed.rule, one))
        """The nodes that the rule is about."""
        self.applied: set[int] = set()
        """The nodes that have it now."""
        self.released = False
        self.delivered = 0
        """The hits that the front decided, and whose nodes know it."""
        self._reports: dict[int, int] = {}
        """Node -> the hits that it has reported as events: a node's last one is in no row, if the node has ended."""
        self._rows: dict[int, RuleRow] = {}
        self._met = self._hits = 0
        """The counts of processes that have ended."""

    @property
    def hits(self) -> int:
        """The hits on all nodes."""
        return self.armed.hits if self.decided else self._hits + sum(self._count_of(one)[1] for one in self.nodes)

    @property
    def met(self) -> int:
        """The matches on all nodes."""
        return self.armed.met if self.decided else self._met + sum(self._count_of(one)[0] for one in self.nodes)

    @property
    def spent(self) -> bool:
        """Whether it was removed, or has used up its hits or its time."""
        times = self.armed.rule.times
        return self.armed.spent or bool(times and self.hits >= times)

    @property
    def waiting_for(self) -> list[int]:
        """The nodes that are to get the rule when they return."""
        return [] if self.spent else [one for one in self.nodes if one not in self.applied]

    def on_report(self, node_id: int, row: RuleRow) -> None:
        """Take the row that a node reports."""
        self._rows[node_id] = row
        self._add_up()

    def hit(self, node_id: int) -> None:
        """A node reports a hit."""
        self._reports[node_id] = self._reports.get(node_id, 0) + 1
        self._add_up()

    def _add_up(self) -> None:
        """Let the front's own rule have the counts of the nodes: another rule may apply only while it can hit."""
        if not self.decided:
            self.armed.met, self.armed.hits = self.met, self.hits

    def on_unlinked(self, node_id: int) -> None:
        """A node does not answer any more: it holds nothing that could be released, and is to get the rule again."""
        self.applied.discard(node_id)
        if (row := self._rows.get(node_id)) is not None:
            self._rows[node_id] = {**row, "held": 0}

    def on_replaced(self, node_id: int) -> None:
        """A node has a new process, which counts from zero: keep the counts of the old one."""
        met, hits = self._count_of(node_id)
        self._met += met
        self._hits += hits
        self._rows.pop(node_id, None)
        self._reports.pop(node_id, None)

    def _count_of(self, node_id: int) -> tuple[int, int]:
        """The matches and hits of a node's present process."""
        row, reports = self._rows.get(node_id), self._reports.get(node_id, 0)
        met, hits = (0, 0) if row is None else (row["met"], row["hits"])
        return max(met, reports), max(hits, reports)

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
