"""`anabranch demo`: replays real data through a topic that is resized while nodes are killed, and audits it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.cli.examples import examples
from anabranch.runtime.interruptible import run_interruptible

if TYPE_CHECKING:
    from rich.console import Console

    from anabranch.demo.progress import Story

LOG_COLUMNS = 120
MARK = ".anabranch-demo"
INSTALL = "the demo needs extras: pip install 'anabranch[audit,demo,java]'"


@click.command(
    name="demo",
    epilog=examples("anabranch demo", "anabranch demo --flights 50000 --out /tmp/demo      a shorter one"),
)
@click.option("--out", default="out/demo", show_default=True, type=click.Path(file_okay=False), help="Logs and report.")
@click.option("--flights", type=click.IntRange(1000), help="Only the first N of the 336,776 flights.")
def command(out: str, flights: int | None) -> None:
    """Replay a year of flights through a topic that is resized under fire, and audit every delivery with Spark.

    Exits 0 if every flight was delivered in order, and the audit found violations in the control replay, done as Kafka
    does it.
    """
    from rich.console import Console

    from anabranch.cluster.node_process import NodeFailed
    from anabranch.cluster.zookeeper import ZooKeeperUnavailable
    from anabranch.demo.child_process import ChildProcessFailed
    from anabranch.demo.flights import DataMissing
    from anabranch.demo.scenario import failures

    directory = fresh(Path(out))
    # Without a terminal the width would be 80 columns, which would wrap every line.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else LOG_COLUMNS)
    try:
        job, control = run_interruptible(play(directory, console, flights))
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{INSTALL} ({error})") from None
    except ZooKeeperUnavailable as error:
        raise click.ClickException(str(error)) from None
    except (ChildProcessFailed, NodeFailed, DataMissing, ConnectionError, TimeoutError) as error:
        raise click.ClickException(f"{error}\nlogs are in {directory}") from None
    wrong = failures(job, control)
    show_verdict(console, job, control, wrong, directory)
    sys.exit(1 if wrong else 0)


def fresh(directory: Path) -> Path:
    """The directory, without the files of an earlier demonstration. Raises UsageError if it holds anything else."""
    if directory.exists() and any(directory.iterdir()):
        if not (directory / MARK).exists():
            raise click.UsageError(f"--out {directory} contains other files; name a new or empty directory")
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARK).touch()
    return directory


async def play(directory: Path, console: Console, flights: int | None) -> list[Story]:
    """Run both replays and write the report."""
    from anabranch.demo import report
    from anabranch.demo.scenario import Demonstration
    from anabranch.demo.view import View

    with View(console) as view:
        stories = await Demonstration(directory, view, limit=flights).run()
    report.write(directory / "report.html", stories)
    return stories


def show_verdict(console: Console, job: Story, control: Story, wrong: list[str], directory: Path) -> None:
    """Print the verdict, as a table and in words."""
    from rich.table import Table

    table = Table("", "the job", "control: resizes as in Kafka", title="Verdict of the order audit")
    table.add_row("flights acknowledged", f"{job.acked:,}", f"{control.acked:,}")
    for label, key in (
        ("delivered (each counted once)", "delivered"),
        ("out of order", "out_of_order"),
        ("lost", "lost"),
        ("repeated", "repeated"),
        ("redelivered after a failure (allowed)", "redelivered"),
    ):
        table.add_row(label, f"{job.verdict.get(key, 0):,}", f"{control.verdict.get(key, 0):,}")
    console.print(table)
    for moment in job.moments:
        console.print(f"  {(moment.t_ms - job.began_ms) / 1000:8.2f} s  {moment.text}")
    hand_offs = sorted(ms for _, ms in job.hand_offs_ms())
    if hand_offs:
        console.print(
            f"{len(hand_offs)} hand-offs: median {hand_offs[len(hand_offs) // 2]} ms, longest {hand_offs[-1]} ms"
        )
    if control.examples:
        from anabranch.audit.view import violation_line

        console.print("the first violation in the control:")
        console.print(violation_line(control.examples[0]))
    console.print(f"report: {directory / 'report.html'}")
    if wrong:
        console.print("[bold red]FAILED[/]: " + "; ".join(wrong))
    else:
        console.print(
            f"[bold green]PASSED[/]: {job.total:,} flights delivered in order through 3 resizes and 2 kills; "
            f"{control.verdict.get('out_of_order', 0):,} violations found in the control"
        )
