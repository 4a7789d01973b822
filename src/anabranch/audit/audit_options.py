"""The options of `anabranch audit` as one value, and the check of their combinations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from anabranch.broker.config.properties_file import properties_in
from anabranch.spark_jobs import secured
from anabranch.spark_jobs.scope import FORGET_MS, READ_COMMITTED, Scope
from anabranch.spark_jobs.source_options import OPEN, Client

HOUR_MS: Final = 3600 * 1000


class InvalidOptions(ValueError):
    """Conflicting options; the message names them, and an alternative."""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The options of one audit."""

    bootstrap_servers: str
    topic: str | None
    expect: str | None
    out: Path
    follow: bool
    serve: bool
    backfill: bool
    copy: Path | None
    replay: Path | None
    master: str
    conf: Mapping[str, str]
    violations_to: str | None
    events: Path | None
    metrics_port: int | None
    metrics_host: str
    package: Path | None
    source: str = "anabranch"
    groups: tuple[str, ...] = ()
    forget_after: int | None = None
    """In hours; None: those of the copy, or the default."""
    allow_empty: bool = False
    fail_on_data_loss: bool = True
    isolation_level: str = READ_COMMITTED
    deliveries: tuple[Path, ...] = ()
    """Files of deliveries that members have written themselves, instead of an audit topic."""
    sent: tuple[Path, ...] = ()
    """Files of records that producers have sent."""
    client: Client = field(default_factory=dict, repr=False)
    """Credentials as Kafka's client properties."""

    @property
    def directory(self) -> Path:
        """The output directory of this audit. A batch job and a stream of the same topic have different ones."""
        assert self.topic is not None, "checked"
        return self.out / self.topic / ("backfill" if self.is_batch else "")

    @property
    def is_batch(self) -> bool:
        """Whether the audit is a batch job over the current topics or a copy of them."""
        return self.backfill or self.replay is not None or bool(self.deliveries)

    @property
    def scope(self) -> Scope:
        """The groups and records that are audited."""
        groups = tuple(sorted(set(self.groups)))
        forget_ms = FORGET_MS if self.forget_after is None else self.forget_after * HOUR_MS
        return Scope(self.expect, groups, forget_ms, self.isolation_level)

    @property
    def topics(self) -> list[str | None]:
        """The topics that must exist."""
        return [self.topic, self.expect, self.violations_to]

    def check(self) -> None:
        """Raise InvalidOptions for conflicting options."""
        for path in (*self.deliveries, *self.sent):
            if not path.exists():
                raise InvalidOptions(f"{path}: there is no such file")
        if self.deliveries:
            if self.topic or self.expect or self.serve or self.backfill or self.replay is not None or self.groups:
                raise InvalidOptions(
                    "--deliveries reads no topics: leave out --topic, --expect, --group, --serve, "
                    "--backfill and --replay"
                )
        elif self.sent:
            raise InvalidOptions("--sent needs --deliveries")
        elif not self.topic and not self.serve and self.replay is None:
            raise InvalidOptions("name the audit topic: --topic flights-audit")
        if self.topic is not None and self.topic == self.expect:
            raise InvalidOptions(
                f"--expect {self.expect} is the audit topic; name the topic whose records the audit topic is about"
            )
        if self.follow and (self.is_batch or self.serve):
            raise InvalidOptions("--follow cannot be combined with --backfill, --replay or --serve")
        if self.copy is not None and not self.backfill:
            raise InvalidOptions("--copy needs --backfill")
        if self.copy is not None and self.copy.exists():
            raise InvalidOptions(f"--copy {self.copy} already exists; name a new directory")
        if self.replay is not None and self.backfill:
            raise InvalidOptions("--replay is a backfill from a copy; leave --backfill out")
        if self.package is not None and self.serve:
            raise InvalidOptions("--package cannot be combined with --serve: a submitted job has no standard input")
        if self.groups and not self.expect and not self.serve and self.replay is None:
            raise InvalidOptions("--group needs --expect: the topic whose records these groups must get")
        if self.isolation_level != READ_COMMITTED and (self.serve or self.replay is not None):
            raise InvalidOptions(
                "--isolation-level: --serve is told with each audit; --replay has what was copied, and no more"
            )
        if self.is_batch and (self.metrics_port is not None or self.violations_to):
            raise InvalidOptions("--metrics-port and --violations-to need a stream")


def settings(pairs: Sequence[str]) -> dict[str, str]:
    """Parse NAME=VALUE into Spark's configuration. Raises InvalidOptions."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidOptions(f"--conf {pair}: write NAME=VALUE")
        found[name] = value
    return found


def client_in(path: Path | None) -> Client:
    """Read credentials from a file of Kafka's client properties. Raises InvalidOptions."""
    if path is None:
        return OPEN
    place = f"--command-config {path}"
    try:
        properties = properties_in(path.read_text())
    except (ValueError, OSError) as error:
        raise InvalidOptions(f"{place}: {error}") from None
    return client_of(properties, place)


def client_of(properties: Mapping[str, str], place: str) -> Client:
    """Check credentials; `place` names their source in errors. Raises InvalidOptions."""
    try:
        return secured.of(properties)
    except (ValueError, OSError) as error:
        raise InvalidOptions(f"{place}: {error}") from None
