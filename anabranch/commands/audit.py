"""`anabranch audit`: judge the deliveries of a group while they happen, or afterwards."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from spark_jobs.service import AuditService

INSTALL = "the audit runs on Spark, which needs Java 17 and the extra: pip install 'anabranch[audit]'"


@click.command(
    name="audit",
    epilog="""\b
Examples:
  anabranch audit --topic flights-audit --expect flights
      judge what was delivered so far against what is stored; exit status 1 if anything was violated
  anabranch audit --topic flights-audit --follow
      audit until Ctrl-C, then judge
  anabranch audit --serve --out out/audit
      wait for commands on standard input: {"audit": TOPIC, "expect": TOPIC} and {"finish": TOPIC}
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
        from spark_jobs.audit import open_session
    except ImportError as error:
        raise click.ClickException(f"{INSTALL} ({error})") from None
    directory = Path(out)
    session = open_session(directory)
    audits = service.AuditService(session, bootstrap_servers, directory)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0) if serve else signal.raise_signal(signal.SIGINT))
    try:
        if serve:
            service.serve(audits, sys.stdin)
        else:
            assert topic is not None
            judge(audits, topic, expect, follow=follow)
    finally:
        audits.stop()
        session.stop()


def judge(audits: AuditService, topic: str, expect: str | None, *, follow: bool) -> None:
    """Audit one topic and exit with the verdict."""
    from rich.console import Console
    from rich.table import Table

    from spark_jobs import checks

    audits.begin(topic, expect)
    if follow:
        told = threading.Event()
        signal.signal(signal.SIGINT, lambda *_: told.set())
        told.wait()
    judgement = audits.finish(topic)
    table = Table("", "count", title=f"Audit of {topic}")
    for name, count in judgement.items():
        table.add_row(name.replace("_", " "), f"{count:,}")
    Console().print(table)
    sys.exit(0 if checks.clean(judgement) else 1)
