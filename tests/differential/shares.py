"""The share of equal answers per API, printed and kept."""

from __future__ import annotations

import json

from anabranch.broker.support import COMPARED
from tests.differential.compare import Comparison
from tests.differential.known import KNOWN_DIFFERENCES


def table(result: Comparison) -> str:
    """The share of equal answers per API."""
    rows = [f"{'API':32}{'answers':>9}{'equal':>9}"]
    for api, count in sorted(result.asked.items()):
        rows.append(f"{api:32}{count:9}{1 - result.unequal[api] / count:9.1%}")
    rows.append(f"{'all':32}{result.asked.total():9}{result.share:9.1%}")
    return "\n".join(rows)


def keep(result: Comparison) -> None:
    """Write down what SUPPORT.md tells: the counts, and why the rest differs."""
    counts = {
        api: {"answers": count, "equal": count - result.unequal[api]} for api, count in sorted(result.asked.items())
    }
    differences = sorted([row.api, row.why] for row in KNOWN_DIFFERENCES)
    COMPARED.write_text(json.dumps({"apis": counts, "differences": differences}, indent=2) + "\n")
