"""Refuses rules and control requests that a proxy cannot apply, and names alternatives. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.faults.rule_json import InvalidRule

if TYPE_CHECKING:
    from anabranch.faults.rule import Rule

CLIENTS: Final = "use disconnect=before, silence or half_open for its clients"
INSTEAD: Final = {
    "node": f"a proxy cannot {{value}} a broker of another cluster; {CLIENTS}",
    "elect": "a proxy cannot elect leaders; use error=NOT_LEADER_OR_FOLLOWER",
    "stale_metadata": "a proxy cannot change the metadata of brokers; edit responses of Metadata",
    "disk": "a proxy cannot change the disks of its cluster; use error=KAFKA_STORAGE_ERROR",
    "step": "a proxy does not see steps of controllers; name an api",
    "link": "requests between brokers do not pass the proxy; name brokers for requests of clients",
    "between_brokers": "requests between brokers do not pass the proxy; leave it out for requests of clients",
    "principal": "a proxy does not know the principal of a client; name its client_id, or its address",
}
"""Field of a rule -> why a proxy cannot apply it."""


def refuse_unsupported(rule: Rule) -> None:
    """Raise InvalidRule if a rule needs a cluster in this process."""
    for field, why in INSTEAD.items():
        if value := getattr(rule, field):
            raise InvalidRule(why.format(value=value))
