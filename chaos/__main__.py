"""`python -m anabranch.chaos`: run a cluster of processes under load and faults, and print a verdict.

Single faults in a running cluster are commands of its control plane: `anabranch control` and `anabranch faults`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import re
import shlex
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from anabranch.broker.profiles.profile import VERSIONS
from anabranch.chaos.audited import AuditCompanion, AuditFailed
from anabranch.chaos.members import InvalidDelivery
from anabranch.chaos.restarted_processes import ProcessesFailed
from anabranch.cluster.node_process import NodeFailed
from anabranch.cluster.zookeeper import ZooKeeperUnavailable

if TYPE_CHECKING:
    from anabranch.control.endpoint import ControlEndpoint

Command = Callable[[argparse.Namespace], Awaitable[int]]
EPILOG: Final = """\
examples:
  python -m anabranch.chaos run --duration 60 --seed 7     everything at once, with a verdict
  python -m anabranch.chaos run --duration 60 --control 127.0.0.1:9190
                                                           the same, and its dashboard shows it
  python -m anabranch.chaos run --duration 60 --login       the same, and everybody gives a password
  python -m anabranch.chaos run --duration 60 --kafka 4.1 --member "mine=python examples/members/librdkafka.py consumer"
                                                           the same, and a group of yours reads and is judged
  python -m anabranch.chaos run --duration 60 --sharers 3  the same, and three members share a topic (KIP-932)
  python -m anabranch.chaos run --duration 60 --instances 2 --copiers 2
                                                           the same, and a Streams application and a group of copiers
                                                           process each record exactly once
  python -m anabranch.chaos run --duration 60 --audit out/audited   the same, audited by Spark, twice; with a report
  python -m anabranch.chaos run --duration 6000 --totals out/chaos.jsonl
                                                           100 minutes, added to the totals of earlier runs
"""


class InvalidOptions(Exception):
    """Options conflict, or an option has an invalid value."""


FAILURES: Final = (
    InvalidOptions,
    AuditFailed,
    InvalidDelivery,
    NodeFailed,
    ProcessesFailed,
    ZooKeeperUnavailable,
    OSError,
)
"""What ends a command with one line."""


def say(line: str) -> None:
    """Print one line about an action."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def endpoint_of(options: argparse.Namespace) -> ControlEndpoint | None:
    """Create the endpoint of --control, if it is given. Raises InvalidOptions for an address beyond loopback."""
    from anabranch.control.endpoint import make_control_endpoint

    try:
        return make_control_endpoint(options.control, None)
    except click.UsageError as error:
        raise InvalidOptions(error.message) from None


async def run(options: argparse.Namespace) -> int:
    """Run `anabranch.chaos.run`, and print its verdict."""
    from anabranch.chaos.plan import Plan
    from anabranch.chaos.run import chaos
    from anabranch.chaos.totals import add_run, read_runs
    from anabranch.chaos.totals import report as report_totals
    from anabranch.chaos.verdict import report

    seed = options.seed if options.seed is not None else int(time.time_ns() // 1_000_000_000)  # drawn once, and printed
    say(f"chaos for {options.duration:g} s, seed {seed}")
    if options.login and options.member:
        raise InvalidOptions("--login excludes --member: members get no password")
    if options.ungated and not options.member:
        raise InvalidOptions("--ungated needs --member")
    if options.shrink and not options.member:
        raise InvalidOptions("--shrink needs --member; without members, the topic shrinks anyway")
    members = dict(options.member)
    if len(members) < len(options.member):
        raise InvalidOptions("duplicate group: give each --member its own name")
    if options.sharers and options.kafka not in (None, "4.2"):
        raise InvalidOptions("--sharers needs --kafka 4.2, for share groups")
    if options.totals is not None:
        try:
            read_runs(options.totals)
        except ValueError:
            raise InvalidOptions(f"--totals: {options.totals} was not written by chaos runs") from None
    plan = Plan(
        duration_s=options.duration,
        sharers=options.sharers,
        copiers=options.copiers,
        instances=options.instances,
        seed=seed,
        rate=options.rate,
        pace_s=options.pace,
        members=members,
        gated=not options.ungated,
        shrinks=options.shrink,
    )
    async with audit_of(options.audit, "orders") as companion:
        if companion is not None:
            plan = replace(plan, audit=companion.audit_topic)
        endpoint = endpoint_of(options)
        if endpoint is not None:
            say(f"dashboard: {endpoint.url}/")
        verdict = await chaos(
            plan,
            say=say,
            directory=options.directory,
            companion=companion,
            login=options.login,
            kafka=options.kafka,
            endpoint=endpoint,
        )
    totals = () if options.totals is None else report_totals(add_run(options.totals, verdict))
    for line in (*report(verdict), *(companion.lines() if companion else ()), *totals):
        say(line)
    return 0 if verdict.good and (companion is None or companion.good) else 1


async def long_run(options: argparse.Namespace) -> int:
    """Run a marathon, and print its verdict."""
    from anabranch.chaos.marathon import MarathonPlan, marathon, report

    course = MarathonPlan(records=options.records, resizes=options.resizes, seed=options.seed, faults=options.faults)
    async with audit_of(options.audit, "marathon") as companion:
        if companion is not None:
            course = replace(course, audit=companion.audit_topic)
        outcome = await marathon(course, say=say, companion=companion)
    for line in (*report(outcome), *(companion.lines() if companion else ())):
        say(line)
    return 0 if outcome.good and (companion is None or companion.good) else 1


@contextlib.asynccontextmanager
async def audit_of(directory: Path | None, topic: str) -> AsyncIterator[AuditCompanion | None]:
    """Create the audit of a run, if a directory for it is given; else None."""
    if directory is None:
        yield None
        return
    companion = AuditCompanion(directory, say, topic)
    try:
        yield companion
    finally:
        await companion.stop()


class Commands:
    """The parser of the command line."""

    def __init__(self) -> None:
        self.parser = argparse.ArgumentParser(
            prog="python -m anabranch.chaos",
            description=__doc__,
            epilog=EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self._commands = self.parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
        self._add_run()
        self._add_marathon()

    def _add(self, name: str, function: Command, help_text: str) -> argparse.ArgumentParser:
        one = self._commands.add_parser(name, help=help_text, description=help_text)
        one.set_defaults(function=function)
        return one

    def _add_run(self) -> None:
        one = self._add("run", run, "run a cluster under load and faults, and print a verdict")
        one.add_argument("--duration", type=positive, default=600.0, help="seconds of faults")
        one.add_argument("--seed", type=int, help="seed of the faults")
        one.add_argument("--rate", type=positive, default=25.0, help="records per second and producer")
        one.add_argument("--pace", type=positive, default=3.0, help="mean seconds between bursts of faults")
        one.add_argument("--directory", type=empty, help="keep data and logs there")
        one.add_argument("--login", action="store_true", help="use SASL for clients and nodes")
        one.add_argument("--kafka", choices=VERSIONS, help="the version of Kafka that brokers show")
        one.add_argument(
            "--member",
            action="append",
            default=[],
            type=named_command,
            metavar="GROUP=COMMAND",
            help="run two such programs as a group, kill them at times, and check their delivery logs",
        )
        one.add_argument("--control", metavar="HOST:PORT", help="serve the control plane on this address of loopback")
        one.add_argument("--sharers", type=whole, default=0, help="members of a share group (KIP-932)")
        one.add_argument("--copiers", type=whole, default=0, help="members that copy the topic in transactions")
        one.add_argument("--instances", type=whole, default=0, help="instances of a Streams application")
        one.add_argument("--ungated", action="store_true", help="the control: no gates for these groups")
        one.add_argument("--shrink", action="store_true", help="also shrink the topic under these groups")
        one.add_argument(
            "--totals", type=Path, metavar="FILE", help="add the counts of this run to the file, and print its totals"
        )
        audited(one)

    def _add_marathon(self) -> None:
        one = self._add(
            "marathon", long_run, "run millions of records through 100 resizes and kills, and print a verdict"
        )
        one.add_argument("--records", type=whole, default=10_000_000)
        one.add_argument("--resizes", type=whole, default=100)
        one.add_argument("--seed", type=int, default=0, help="seed of the faults")
        one.add_argument("--faults", type=whole, default=150)
        audited(one)


def audited(one: argparse.ArgumentParser) -> None:
    """Add the options of a run with a Spark audit."""
    one.add_argument(
        "--audit", type=empty, help="audit the deliveries with Spark, and write a report to this directory"
    )


def named_command(text: str) -> tuple[str, str]:
    """Parse a group's name and the command of its members."""
    name, equals, command = text.partition("=")
    if not equals or not command.strip() or not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise argparse.ArgumentTypeError(f"{text!r} is not GROUP=COMMAND, such as 'mine=python member.py'")
    try:
        shlex.split(command)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{command!r} is no command: {error}") from None
    return name, command


def positive(text: str) -> float:
    """Parse a finite number above 0."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def whole(text: str) -> int:
    """Parse a whole number that is not negative."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return number


def empty(text: str) -> Path:
    """Parse a directory that is new or empty."""
    path = Path(text)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise argparse.ArgumentTypeError(f"{path} contains other files; name a new or empty directory")
    return path


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Returns the exit status: 2, with one line, if it fails."""
    options = Commands().parser.parse_args(arguments)
    try:
        status: int = asyncio.run(options.function(options))
    except FAILURES as error:
        if isinstance(error, TimeoutError):
            raise  # a bug: it has no text, and a run ends with a verdict
        sys.stderr.write(f"chaos: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
