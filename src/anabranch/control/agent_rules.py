"""Refuses rules that one node cannot apply alone, and says where they are possible. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.faults.matching import ANY, ends_of
from anabranch.faults.rule_json import InvalidRule

if TYPE_CHECKING:
    from anabranch.faults.rule import Rule

FRONT: Final = "ask the front of the cluster: `anabranch up --processes --control`, or `anabranch control serve`"
OWN_ACTIONS: Final = ("kill", "stop", "freeze")
"""The actions that a node applies to its own process: SIGKILL, SIGTERM and SIGSTOP."""
ELSEWHERE: Final = {
    "start": "a node that runs cannot start another one",
    "expire": "a node cannot end its ZooKeeper session and keep the knowledge of it",
    "suspend": "a node cannot cut its own connection to ZooKeeper",
}
"""Action of a rule -> why an agent refuses it."""


def refuse_unsupported(rule: Rule, node_id: int, *, has_front: bool = False) -> None:
    """Raise InvalidRule if the agent of this node cannot apply a rule.

    With `has_front` the front decides on each request, and applies the actions on other nodes itself. A step is decided
    in the node, where no front can act in time.
    """
    if rule.brokers and node_id not in rule.brokers:
        raise InvalidRule(f"this is the agent of node {node_id}, which the rule is not about; {FRONT}")
    if rule.link and not any({ANY, str(node_id)} & set(ends_of(link)) for link in rule.link if ":" in link):
        raise InvalidRule(f"this is the agent of node {node_id}, and no link of the rule ends there; {FRONT}")
    if not rule.node or (has_front and not (rule.step or rule.disk)):
        return
    if rule.node in ELSEWHERE:
        raise InvalidRule(f"{ELSEWHERE[rule.node]}; {FRONT}")
    if rule.on and set(rule.on) != {node_id}:
        raise InvalidRule(f"the agent of node {node_id} acts on its own node only; {FRONT}")
