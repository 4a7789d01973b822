"""A handle to a cluster in another process, for blocking tests."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Unpack

from anabranch.protocol.suggestion import suggest, suggest_arguments
from anabranch.testing.failure_report import FailureReport, ReportStart

if TYPE_CHECKING:
    from anabranch.clients.security import SecurityArguments
    from anabranch.control.client import ControlClient
    from anabranch.control.clock_client import ClockClient
    from anabranch.control.fault_client import FaultsClient
    from anabranch.control.journal_client import JournalClient
    from anabranch.control.node_control import NodeControl
    from anabranch.control.snapshots_client import SnapshotsClient
    from anabranch.control.telemetry_client import TelemetryClient
    from anabranch.control.wait_conditions import WaitCondition
    from anabranch.faults.active_rule import RuleRow
    from anabranch.journal.entry import ExchangeRow
    from anabranch.journal.query import JournalFilter
    from anabranch.testing.blocking_admin import BlockingAdmin

NO_JOURNAL: Final = 409


@suggest_arguments
class RunningCluster:
    """A cluster in another process; the value of the fixtures."""

    def __init__(
        self,
        bootstrap_servers: str,
        control: ControlClient | None = None,
        listeners: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        """The brokers as "HOST:PORT,HOST:PORT"; with several listeners, the first one's addresses."""
        self.listeners = listeners
        """Listener name -> bootstrap servers, where known."""
        self._control = control

    @property
    def control(self) -> ControlClient:
        """The client of the cluster's control plane.

        Raises:
            RuntimeError: The extra `control` is not installed.
        """
        if self._control is None:
            raise RuntimeError("to control the cluster: pip install 'anabranch[control]'")
        return self._control

    @property
    def admin(self) -> BlockingAdmin:
        """A blocking `anabranch.Admin`: `admin.create_topics([...])`."""
        from anabranch.testing.blocking_admin import BlockingAdmin

        return BlockingAdmin(self.bootstrap_servers)

    def admin_as(self, listener: str, **security: Unpack[SecurityArguments]) -> BlockingAdmin:
        """A blocking admin client for one listener, with credentials as for `anabranch.Admin`.

        Args:
            listener: The listener's name.
            **security: `security_protocol`, `sasl_plain_username` and so on, by aiokafka's names.

        Raises:
            ValueError: No listener of this name is known.
        """
        from anabranch.testing.blocking_admin import BlockingAdmin

        if listener not in self.listeners:
            known = suggest(listener, self.listeners) if self.listeners else "the listeners of this cluster are unknown"
            raise ValueError(f"no listener {listener!r}; {known}")

        return BlockingAdmin(self.listeners[listener], **security)

    @property
    def nodes(self) -> Mapping[int, NodeControl]:
        """The nodes by id: `nodes[2].kill()`, `nodes[2].start()`, `nodes[2].expire_session()`."""
        return self.control.nodes

    @property
    def clock(self) -> ClockClient:
        """The clock: `clock.advance("45s")` makes everything due in 45 seconds happen."""
        return self.control.clock

    @property
    def faults(self) -> FaultsClient:
        """The fault rules: `faults.add(api="Produce", error="REQUEST_TIMED_OUT", times=2)`, or a `with` block."""
        return self.control.faults

    @property
    def journal(self) -> JournalClient:
        """The journal, if one is kept: `journal.count(api="OffsetCommit", group="billing")`."""
        return self.control.journal

    @property
    def snapshots(self) -> SnapshotsClient:
        """The snapshots by name: `snapshots.take("seeded")`, `snapshots.restore("seeded")`."""
        return self.control.snapshots

    @property
    def telemetry(self) -> TelemetryClient:
        """The metrics that clients push, if brokers accept them: `telemetry.wait_for("shop")`."""
        return self.control.telemetry

    def reset(self) -> None:
        """Reset the cluster: same ports, no topics, groups or rules; client connections are closed."""
        self.control.reset()

    @contextlib.contextmanager
    def fork(self, snapshot: str = "") -> Iterator[RunningCluster]:
        """Run another cluster while the block runs, on other ports, with this cluster's data.

        Args:
            snapshot: The name of a snapshot whose data it gets instead.
        """
        number, response = self.control.snapshots.fork(snapshot)
        try:
            control = self.control.of_fork(response["control"])
            yield RunningCluster(response["bootstrap"], control, response["listeners"])
        finally:
            self.control.snapshots.end_fork(number)

    def topic(self, name: str = "", partitions: int = 1, replicas: int = -1, **configs: str) -> str:
        """Create a topic, and wait until it is usable.

        Args:
            name: The topic's name; a new one if empty.
            partitions: The number of partitions.
            replicas: The replication factor; -1: the cluster's default.
            **configs: Topic configs by their Kafka names, with _ for dots.

        Returns:
            The topic's name.

        Raises:
            ControlError: The topic cannot be created; the message has Kafka's error.
        """
        name = name or f"topic-{uuid.uuid1()}"
        try:
            self.control.create_topic(name, partitions, replicas=replicas, configs=configs)
        except RuntimeError as error:
            if configs:
                error.add_note("topic() takes name, partitions and replicas; all other arguments are topic configs")
            raise
        return name

    def wait_for(self, *, timeout_s: float = 30.0, **condition: Unpack[WaitCondition]) -> None:
        """Wait until a condition holds, such as topic="orders", partition=0, leader=2: see `ControlClient.wait_for`."""
        self.control.wait_for(timeout_s=timeout_s, **condition)

    def report_start(self) -> ReportStart:
        """Return the starting point of a failure report."""
        if self._control is None:
            return ReportStart()
        events, exchanges = self.control.events(), self._exchanges(limit=1)
        return ReportStart(
            event=events[-1]["number"] if events else 0,
            exchange=exchanges[-1]["number"] if exchanges else 0,
            removed=[row for row in self.faults.rows(removed=True) if row["removed"]],
        )

    def report(self, since: ReportStart | None = None) -> FailureReport:
        """Return a failure report: rules, exchanges and events."""
        since = since or ReportStart()
        if self._control is None:
            return FailureReport()
        try:
            return FailureReport(
                rules=self._rules(since),
                exchanges=self._exchanges(after=since.exchange),
                events=self.control.events(since.event),
            )
        except ConnectionError as error:
            return FailureReport(unreachable=str(error))

    def _rules(self, since: ReportStart) -> list[RuleRow]:
        """Return the rules, without those that earlier tests have removed. Tests may use the same names."""
        rows = self.faults.rows(removed=True)
        for row in since.removed:
            if row in rows:
                rows.remove(row)
        return rows

    def _exchanges(self, **where: Unpack[JournalFilter]) -> list[ExchangeRow]:
        """Return exchanges of the journal; none without a journal."""
        from anabranch.control.control_error import ControlError

        try:
            return self.journal.entries(**where)
        except ControlError as error:
            if error.status != NO_JOURNAL:
                raise
            return []
