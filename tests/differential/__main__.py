"""Replay stories on Apache Kafka and on Anabranch, and print what differs: `python -m tests.differential --help`."""

from __future__ import annotations

import argparse
import asyncio
import sys

from anabranch.protocol.suggestion import suggest
from tests.differential import kafka_server, kraft_server
from tests.differential.case import CASES
from tests.differential.compare import grouped
from tests.differential.known import known_differences
from tests.differential.run import compared, selected
from tests.differential.shares import keep, table


def parse(words: list[str]) -> argparse.Namespace:
    """Return the arguments. Exits with a message for a name that no case has."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__.partition(":")[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="an API, an API.case, or a number of brokers; all cases without one"
    )
    parser.add_argument("--kafka", default="3.9", metavar="VERSION", help="3.9 (default), 4.1 or 4.2; needs its jars")
    parser.add_argument("--keep", action="store_true", help="write the shares of equal responses into the pages")
    arguments = parser.parse_args(words)
    for name in arguments.names:
        if not selected([name]):
            ids = [case.id for case in CASES if case.api == name.partition(".")[0]]
            parser.error(f"no case {name!r}; {suggest(name, ids or sorted({case.api for case in CASES}))}")
    return arguments


def main(words: list[str]) -> int:
    """0 if every difference is a known one."""
    arguments = parse(words)
    kafka, names = arguments.kafka, arguments.names
    if reason := kafka_server.why_absent() if kafka < "4" else kraft_server.why_absent(kafka):
        print(reason, file=sys.stderr)
        return 2
    result = asyncio.run(compared(selected(names), kafka))
    known = known_differences(kafka)
    new = [one for one in result.differences if not any(row.explains(one) for row in known)]
    print("\n".join(grouped(new)))
    gone = [] if names else [row for row in known if not any(map(row.explains, result.differences))]
    print("".join(f"no longer a difference: {row.pattern}\n" for row in gone) + table(result))
    if arguments.keep:
        keep(result, kafka)
    return 1 if new or gone else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
