"""The requests and kinds of rules that a control plane supports, as JSON rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, TypedDict

KINDS_OF_RULES: Final = (
    "requests",
    "between_brokers",
    "link",
    "disk",
    "step",
    "stale_metadata",
    "elect",
    "on",
    *(f"node={action}" for action in ("kill", "stop", "start", "freeze", "expire", "suspend")),
)
"""Fields of rules that some control planes do not support; `requests`: all other rules."""


class CapabilityRow(TypedDict):
    """A request or a kind of rule, and whether it is possible here."""

    name: Annotated[str, "such as `POST /v1/nodes/{node}/kill`, or for a rule `disk` or `node=kill`"]
    possible: bool
    reason: Annotated[str, "why it is not possible; empty if it is"]


class CapabilitiesRow(TypedDict):
    """The capabilities of a control plane."""

    requests: list[CapabilityRow]
    rules: Annotated[list[CapabilityRow], "by the fields of rules; `requests` are all rules without such a field"]


def capabilities_row(requests: Iterable[tuple[str, str, str]], refused_rules: Mapping[str, str]) -> CapabilitiesRow:
    """Make the rows.

    Args:
        requests: Method, path, and the reason of its refusal; empty if it is served.
        refused_rules: Kind of rule -> the reason of its refusal.
    """
    return {
        "requests": [_row(f"{method} {path}", reason) for method, path, reason in requests],
        "rules": [_row(kind, refused_rules.get(kind, "")) for kind in KINDS_OF_RULES],
    }


def _row(name: str, reason: str) -> CapabilityRow:
    return {"name": name, "possible": not reason, "reason": reason}
