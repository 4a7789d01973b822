"""The share of equal answers per API, printed and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tests.differential.compare import Comparison

KEPT: Final = Path(__file__).with_name("shares.json")
"""The last whole comparison that somebody kept (`python -m tests.differential --keep`)."""


def table(result: Comparison) -> str:
    """The share of equal answers per API."""
    rows = [f"{'API':32}{'answers':>9}{'equal':>9}"]
    for api, count in sorted(result.asked.items()):
        rows.append(f"{api:32}{count:9}{1 - result.unequal[api] / count:9.1%}")
    rows.append(f"{'all':32}{result.asked.total():9}{result.share:9.1%}")
    return "\n".join(rows)


def keep(result: Comparison) -> None:
    """Write the counts down, for the table of supported APIs."""
    counts = {
        api: {"answers": count, "equal": count - result.unequal[api]} for api, count in sorted(result.asked.items())
    }
    KEPT.write_text(json.dumps(counts, indent=2) + "\n")
