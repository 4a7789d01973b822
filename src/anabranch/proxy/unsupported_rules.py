"""Refuses rules and control requests that a proxy cannot apply, and names alternatives. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.faults.rule_json import InvalidRule

if TYPE_CHECKING:
    from anabranch.faults.rule import Rule

CLIENTS: Final = "cut its clients off with disconnect=before, or leave them without an answer with silence or half_open"
INSTEAD: Final = {
    "node": f"a proxy cannot {{value}} a broker of another cluster; {CLIENTS}",
    "elect": "a proxy has no leaders elected; error=NOT_LEADER_OR_FOLLOWER is what clients hear",
    "stale_metadata": "a proxy does not know what brokers know; edit the answers to Metadata",
    "disk": "a proxy does not reach the disks of another cluster; error=KAFKA_STORAGE_ERROR is what clients hear",
    "step": "a proxy does not see what controllers do; name an api",
    "link": "what brokers ask each other does not pass through a proxy; name brokers, for what clients ask them",
    "between_brokers": "what brokers ask each other does not pass through a proxy; leave it out, for what clients ask",
    "principal": "a proxy does not know as whom a client logs in; name its client_id, or its address",
}
"""Field of a rule -> why a proxy cannot apply it."""


def refuse_unsupported(rule: Rule) -> None:
    """Raise InvalidRule if a rule needs a cluster in this process."""
    for field, why in INSTEAD.items():
        if value := getattr(rule, field):
            raise InvalidRule(why.format(value=value))
