"""`python -m tests.differential [--keep] [API | API.case | 1 | 3]...`: replay the corpus, print differences and shares.

A number selects the cases for that many brokers.
"""

from __future__ import annotations

import asyncio
import sys

from tests.differential.compare import grouped
from tests.differential.kafka_server import why_absent
from tests.differential.known import KNOWN_DIFFERENCES
from tests.differential.run import compared, selected
from tests.differential.shares import keep, table


def main(words: list[str]) -> int:
    """0 if every difference is a known one."""
    if reason := why_absent():
        print(reason, file=sys.stderr)
        return 2
    names = [word for word in words if word != "--keep"]
    result = asyncio.run(compared(selected(names)))
    new = [one for one in result.differences if not any(row.explains(one) for row in KNOWN_DIFFERENCES)]
    print("\n".join(grouped(new)))
    gone = [] if names else [row for row in KNOWN_DIFFERENCES if not any(map(row.explains, result.differences))]
    print("".join(f"no longer a difference: {row.pattern}\n" for row in gone) + table(result))
    if "--keep" in words:
        keep(result)
    return 1 if new or gone else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
