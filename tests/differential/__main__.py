"""`python -m tests.differential [--keep] [--kafka 4.1] [API | API.case | 1 | 3]...`: replay, print what differs.

A number selects the cases for that many brokers. Without `--kafka` it is Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import sys

from tests.differential import kafka_server, kraft_server
from tests.differential.compare import grouped
from tests.differential.known import known_differences
from tests.differential.run import compared, selected
from tests.differential.shares import keep, table


def main(words: list[str]) -> int:
    """0 if every difference is a known one."""
    kafka = words[words.index("--kafka") + 1] if "--kafka" in words else "3.9"
    if reason := (kafka_server if kafka < "4" else kraft_server).why_absent():
        print(reason, file=sys.stderr)
        return 2
    names = [word for word in words if word not in ("--keep", "--kafka", kafka)]
    result = asyncio.run(compared(selected(names), kafka))
    known = known_differences(kafka)
    new = [one for one in result.differences if not any(row.explains(one) for row in known)]
    print("\n".join(grouped(new)))
    gone = [] if names else [row for row in known if not any(map(row.explains, result.differences))]
    print("".join(f"no longer a difference: {row.pattern}\n" for row in gone) + table(result))
    if "--keep" in words:
        keep(result, kafka)
    return 1 if new or gone else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
