"""`python -m tests.clients.streams`: schedules of a Streams group under churn, as many as wanted."""

from __future__ import annotations

import sys
import time
from collections import Counter

import click

from tests.clients.streams.group_simulation import Violation, play


@click.command()
@click.argument("seed", type=int, required=False)
@click.option("--schedules", default=3000, show_default=True, help="How many, when no seed is given.")
@click.option("--steps", default=10, show_default=True, help="How long the churn lasts.")
def main(seed: int | None, schedules: int, steps: int) -> None:
    """Members of a Streams group join, leave, crash, fall behind and change versions; inputs are resized.

    \b
    python -m tests.clients.streams                     3,000 schedules, about half a minute
    python -m tests.clients.streams 41                  one of them
    python -m tests.clients.streams --steps 100         long ones
    """
    seen: Counter[str] = Counter()
    failed = 0
    start_s = time.perf_counter()
    for one in range(schedules) if seed is None else [seed]:
        try:
            seen += play(one, steps)
        except Violation as violation:
            failed += 1
            click.echo(f"seed {one}: {violation}")
    for what, count in sorted(seen.items()):
        click.echo(f"{count:12,} {what}")
    click.echo(f"{failed or 'no'} violations, {time.perf_counter() - start_s:.0f} s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
