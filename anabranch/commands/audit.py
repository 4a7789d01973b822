"""`anabranch audit`: judge the deliveries of a group while they happen, or afterwards."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

import click

if TYPE_CHECKING:
    from spark_jobs.service import AuditService

INSTALL: Final = "the audit runs on Spark, which needs Java 17 and the extra: pip install 'anabranch[audit]'"
POLL_S: Final = 0.5


class CannotRun(click.ClickException):
    """No verdict, for a reason that is said in one line."""

    exit_code = 2


@click.command(
    name="audit",
    epilog="""\b
Examples:
  anabranch audit --topic flights-audit --expect flights
      judge what was delivered so far against what is stored
  anabranch audit --topic flights-audit --follow
      audit until Ctrl-C, then judge
  anabranch audit --serve --out out/audit
      wait for commands on standard input: {"audit": TOPIC, "expect": TOPIC} and {"finish": TOPIC}

\b
Exit status: 0 nothing was violated, 1 something was, 2 there is no verdict. In the directory of --out each audited
topic has a directory with violations/*.jsonl, one line each; spark.log is what Spark said.
""",
)
@click.option("--bootstrap-servers", default="127.0.0.1:9092", show_default=True, metavar="HOST:PORT[,...]")
@click.option("--topic", help="The audit topic that consumers write to.")
@click.option("--expect", metavar="TOPIC", help="The audited topic: what it stores must have been delivered.")
@click.option(
    "--out", default="out/audit", show_default=True, type=click.Path(file_okay=False), help="State, violations."
)
@click.option("--follow", is_flag=True, help="Go on until told to stop.")
@click.option("--serve", is_flag=True, help="Take commands from standard input.")
def command(bootstrap_servers: str, topic: str | None, expect: str | None, out: str, follow: bool, serve: bool) -> None:
    """Check with Spark that every key's records were delivered in order, none lost, none twice."""
    if not topic and not serve:
        raise click.UsageError("name the audit topic: --topic flights-audit")
    try:
        from spark_jobs import service
        from spark_jobs.session import AuditSpark, SparkMissing
    except ImportError as error:
        raise CannotRun(f"{INSTALL} ({error})") from None
    code = 0 if serve else CannotRun.exit_code
    try:
        with handling(signal.SIGTERM, lambda *_: sys.exit(code)):
            if not serve:
                service.look_up(bootstrap_servers, [topic, expect])
            with AuditSpark(Path(out)) as session, handling(signal.SIGINT, stop_without_verdict):
                audits = service.AuditService(session, bootstrap_servers, Path(out))
                if serve:
                    service.serve(audits, sys.stdin)
                    return
                assert topic is not None, "checked above"
                judgement = judge(audits, topic, expect, follow=follow)
    except (service.CannotAudit, SparkMissing) as error:
        raise CannotRun(str(error)) from None
    show(topic, judgement)
    sys.exit(1 if violated(judgement) else 0)


@contextmanager
def handling(number: signal.Signals, handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle a signal for a while; a process that ran a command is afterwards as it was."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def judge(audits: AuditService, topic: str, expect: str | None, *, follow: bool) -> dict[str, int]:
    """Audit one topic, as it is now or until told to stop; the verdict."""
    audits.begin(topic, expect)
    if follow:
        told = threading.Event()
        with handling(signal.SIGINT, lambda *_: told.set()):
            while not told.wait(POLL_S) and audits.active(topic):
                pass
    return audits.finish(topic)


def stop_without_verdict(number: int, frame: FrameType | None) -> NoReturn:
    """Ctrl-C where nothing has been judged yet."""
    raise CannotRun("stopped before there was a verdict")


def violated(judgement: dict[str, int]) -> bool:
    """Whether the verdict is a bad one."""
    from spark_jobs import checks

    return not checks.clean(judgement)


def show(topic: str, judgement: dict[str, int]) -> None:
    """The verdict as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table("", "count", title=f"Audit of {topic}")
    for name, count in judgement.items():
        table.add_row(name.replace("_", " "), f"{count:,}")
    Console().print(table)
