"""Formats an exchange of the journal as a line of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

EXCHANGE_HEADINGS: Final = (
    f"{'number':>6}  {'seconds':>12}  {'node':<6}  {'client':<20} {'request':<24} {'took':>10}  errors, rules"
)


def exchange_line(row: Mapping[str, Any]) -> str:
    """Return number, time, node, client, API, duration, outcome and rules of an exchange's row."""
    took = "" if row["ms"] is None else f"{row['ms']:.1f} ms"
    outcome = ",".join(row["errors"]) or ("" if row["outcome"] == "answered" else row["outcome"])
    names = [one for one in row["rules"] if one not in row["overruled"]]
    rules = f"by {', '.join(names)}" if names else ""
    if row["overruled"]:
        rules += f", over {', '.join(row['overruled'])}"
    api = f"{row['api']} v{row['version']}"
    summary = (
        f"{row['number']:>6}  {row['at']:12.3f}  node {row['node']}  {row['client_id'] or '-':<20} {api:<24} {took:>10}"
    )
    return "  ".join(one for one in (summary, outcome, rules) if one)
