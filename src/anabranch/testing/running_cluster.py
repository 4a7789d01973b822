"""A cluster that runs in another process, in the hands of a test that blocks."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Unpack

from anabranch.testing.failure_report import FailureReport, ReportStart

if TYPE_CHECKING:
    from anabranch.clients.security import SecurityArguments
    from anabranch.control.client import ControlClient, NodeControl
    from anabranch.control.clock_client import ClockClient
    from anabranch.control.fault_client import FaultsClient
    from anabranch.control.journal_client import JournalClient
    from anabranch.control.snapshots_client import SnapshotsClient
    from anabranch.control.telemetry_client import TelemetryClient
    from anabranch.control.wait_conditions import WaitCondition
    from anabranch.journal.query import JournalFilter
    from anabranch.testing.blocking_admin import BlockingAdmin

NO_JOURNAL: Final = 409


class RunningCluster:
    """A cluster in another process, as a test has it: what the fixtures are."""

    def __init__(
        self,
        bootstrap_servers: str,
        control: ControlClient | None = None,
        listeners: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        """Its brokers as "HOST:PORT,HOST:PORT": what any Kafka client is given; of several listeners, the first's."""
        self.listeners = listeners
        """The same by the name of each listener, where they are known."""
        self._control = control

    @property
    def control(self) -> ControlClient:
        """All that may be done to it, and asked of it.

        Raises:
            RuntimeError: The extra `control` is not installed.
        """
        if self._control is None:
            raise RuntimeError("to control the cluster: pip install 'anabranch[control]'")
        return self._control

    @property
    def admin(self) -> BlockingAdmin:
        """The methods of `anabranch.Admin`, each of which returns when it is done: `admin.create_topics([...])`."""
        from anabranch.testing.blocking_admin import BlockingAdmin

        return BlockingAdmin(self.bootstrap_servers)

    def admin_as(self, listener: str, **security: Unpack[SecurityArguments]) -> BlockingAdmin:
        """The same by one of the listeners, let in as `anabranch.Admin` would be.

        Args:
            listener: Its name.
            **security: `security_protocol`, `sasl_plain_username` and its kind, by aiokafka's names.
        """
        from anabranch.testing.blocking_admin import BlockingAdmin

        return BlockingAdmin(self.listeners[listener], **security)

    @property
    def nodes(self) -> Mapping[int, NodeControl]:
        """Its nodes by id: `nodes[2].kill()`, `nodes[2].start()`, `nodes[2].expire_session()`."""
        return self.control.nodes

    @property
    def clock(self) -> ClockClient:
        """Its time: `clock.advance("45s")` lets happen what is due in 45 seconds."""
        return self.control.clock

    @property
    def faults(self) -> FaultsClient:
        """Its rules: `faults.add(api="Produce", error="REQUEST_TIMED_OUT", times=2)`, or a `with` block."""
        return self.control.faults

    @property
    def journal(self) -> JournalClient:
        """Its last exchanges, if it keeps any: `journal.count(api="OffsetCommit", group="billing")`."""
        return self.control.journal

    @property
    def snapshots(self) -> SnapshotsClient:
        """Its states that are kept by name: `snapshots.take("seeded")`, `snapshots.restore("seeded")`."""
        return self.control.snapshots

    @property
    def telemetry(self) -> TelemetryClient:
        """What clients push of their own metrics, if brokers take them: `telemetry.wait_for("shop")`."""
        return self.control.telemetry

    def reset(self) -> None:
        """Have it be as after its start: same ports, no topics, groups or rules; clients' connections are closed."""
        self.control.reset()

    @contextlib.contextmanager
    def fork(self, snapshot: str = "") -> Iterator[RunningCluster]:
        """Another cluster for the length of a block, on other ports, that begins with what this one holds.

        Args:
            snapshot: Or with what a snapshot of this name holds.
        """
        from anabranch.control.client import ControlClient

        number, told = self.control.snapshots.fork(snapshot)
        try:
            yield RunningCluster(told["bootstrap"], ControlClient(told["control"]))
        finally:
            self.control.snapshots.end_fork(number)

    def topic(self, name: str = "", partitions: int = 1, **configs: str) -> str:
        """Create a topic, and return its name when it can be used.

        Args:
            name: Its name; a new one if empty.
            partitions: How many it begins with.
            **configs: Settings by their Kafka names, with _ for dots.

        Returns:
            The topic's name.
        """
        name = name or f"topic-{uuid.uuid1()}"
        self.control.create_topic(name, partitions, configs=configs)
        return name

    def wait_for(self, *, timeout_s: float = 30.0, **condition: Unpack[WaitCondition]) -> None:
        """Wait until a condition holds, such as topic="orders", partition=0, leader=2: see `ControlClient.wait_for`."""
        self.control.wait_for(timeout_s=timeout_s, **condition)

    def report_start(self) -> ReportStart:
        """Return where a report on what happens from now on begins."""
        if self._control is None:
            return ReportStart()
        events, exchanges = self.control.events(), self._exchanges(limit=1)
        return ReportStart(
            event=events[-1]["number"] if events else 0, exchange=exchanges[-1]["number"] if exchanges else 0
        )

    def report(self, since: ReportStart | None = None) -> FailureReport:
        """Return what to look at when a test has failed: rules, exchanges and events."""
        since = since or ReportStart()
        if self._control is None:
            return FailureReport()
        try:
            return FailureReport(
                rules=self.faults.rows(removed=True),
                exchanges=self._exchanges(after=since.exchange),
                events=self.control.events(since.event),
            )
        except ConnectionError as error:
            return FailureReport(unreachable=str(error))

    def _exchanges(self, **where: Unpack[JournalFilter]) -> list[dict[str, Any]]:
        """Return exchanges of the journal; none if none is kept."""
        from anabranch.control.control_error import ControlError

        try:
            return self.journal.entries(**where)
        except ControlError as error:
            if error.status != NO_JOURNAL:
                raise
            return []
