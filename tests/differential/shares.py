"""The share of equal responses per API, printed and stored."""

from __future__ import annotations

import json

from anabranch.broker.node.support import COMPARED, COMPARED_WITH_KAFKA_4
from tests.differential.compare import Comparison
from tests.differential.known import known_differences


def table(result: Comparison) -> str:
    """The share of equal answers per API."""
    rows = [f"{'API':32}{'answers':>9}{'equal':>9}"]
    for api, count in sorted(result.asked.items()):
        rows.append(f"{api:32}{count:9}{1 - result.unequal[api] / count:9.1%}")
    rows.append(f"{'all':32}{result.asked.total():9}{result.share:9.1%}")
    return "\n".join(rows)


def keep(result: Comparison, kafka: str = "3.9") -> None:
    """Store the counts and reasons for SUPPORT.md."""
    counts = {
        api: {"answers": count, "equal": count - result.unequal[api]} for api, count in sorted(result.asked.items())
    }
    differences = sorted([row.api, row.why] for row in known_differences(kafka))
    path = COMPARED if kafka < "4" else COMPARED_WITH_KAFKA_4
    path.write_text(json.dumps({"apis": counts, "differences": differences}, indent=2) + "\n")
