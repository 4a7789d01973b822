"""`python -m tests.model`: explores every model, and prints found and expected results."""

from __future__ import annotations

import sys

import click

from tests.model.large_runs import LARGE
from tests.model.runs import RUNS


@click.command()
@click.option("--stories", is_flag=True, help="Tell the shortest way to each violation, step by step.")
@click.option("--quick", is_flag=True, help="Leave out the runs that take longer than a few seconds.")
@click.option("--large", is_flag=True, help="The large set: takes half an hour, and up to 5 GB of memory.")
@click.option("--only", multiple=True, type=click.Choice(list(LARGE)), help="This model only. May be repeated.")
def main(stories: bool, quick: bool, large: bool, only: tuple[str, ...]) -> None:
    """Visit every state of small instances: of resizes, of leases of members, of share groups.

    \b
    python -m tests.model             every run, a few minutes
    python -m tests.model --stories   with the steps that lead to each defect's damage
    python -m tests.model --large     larger instances
    """
    unexpected = states = 0
    seconds = 0.0
    for model, runs in (LARGE if large else RUNS).items():
        if only and model not in only:
            continue
        click.echo(f"\n{model:58} {'instances':>9} {'states':>9} {'seconds':>8}  found")
        for run in runs:
            if quick and run.slow:
                continue
            result = run.result()
            states += result.states
            seconds += result.seconds
            remark = "" if result.as_expected else f"   EXPECTED {run.finds}"
            found = result.found if not result.wrong else f"{result.found} in {result.wrong}"
            click.echo(f"  {run.name:56} {result.instances:9} {result.states:9} {result.seconds:8.1f}  {found}{remark}")
            if result.worst is not None and (stories or remark):
                for step in result.worst.story:
                    click.echo(f"      {step}")
                click.echo(f"      => {result.worst.violation}")
            unexpected += not result.as_expected
    click.echo(f"\n{states} states in {seconds:.0f} s of processor time; {unexpected or 'no'} surprises")
    sys.exit(1 if unexpected else 0)


if __name__ == "__main__":
    main()
