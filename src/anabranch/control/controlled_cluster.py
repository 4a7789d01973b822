"""The object that a control plane controls: a cluster with its events, clock, telemetry and tour."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from anabranch.clients.admin import Admin
from anabranch.clients.clock import time_of_day_clock
from anabranch.clients.producer.producer import Producer

if TYPE_CHECKING:
    from anabranch.clients.security import SecurityArguments
    from anabranch.clock.cluster_clock import ClusterClock
    from anabranch.cluster.in_process import Cluster
    from anabranch.control.actions import Actions
    from anabranch.control.events import Events
    from anabranch.control.states import States
    from anabranch.control.telemetry import ClientTelemetry
    from anabranch.control.tour_rows import TourRow
    from anabranch.dashboard.feed import Feed
    from anabranch.faults.active_rule import RuleRow
    from anabranch.faults.faults import Faults
    from anabranch.journal.journal import Journal


T = TypeVar("T")


class TourGuide(Protocol):
    """The interface of the tour's guide; see `tour.guide`."""

    @property
    def row(self) -> TourRow | None:
        """The position in the current story; None without one."""

    async def begin(self, on: Any, name: str, make_scene: Callable[[Any], Any] = ...) -> TourRow:
        """Begin a story on the scene of a controlled object; returns its first step."""

    async def next_step(self) -> TourRow:
        """Return the next step."""

    async def end(self) -> None:
        """End the story."""


class Controllable(Protocol):
    """The interface of an object that a control plane can control."""

    @property
    def events(self) -> Events:
        """The events."""

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the controlled object's context."""


async def time_of_day(on: Controllable) -> datetime:
    """The time of day in a controlled cluster: its clock may be ahead of this machine's."""

    async def read_ms() -> int:
        return time_of_day_clock()()

    return datetime.fromtimestamp(await on.run(read_ms()) / 1000, UTC)


@runtime_checkable
class HasDashboard(Protocol):
    """The interface of a controllable object with a dashboard and a tour."""

    def open_dashboard(self, guide: TourGuide) -> tuple[Controllable, Feed]:
        """Make the dashboard's feed; returns the object that has it and the guide, and the feed."""


@dataclass(frozen=True, slots=True)
class ControlledCluster:
    """A cluster, the actions on it, and its events."""

    cluster: Cluster
    actions: Actions
    events: Events
    journal: Journal | None = None
    clock: ClusterClock | None = None
    """The cluster's clock, if it has its own."""
    states: States | None = None
    telemetry: ClientTelemetry | None = None
    """The metrics that clients push."""
    feed: Feed | None = None
    """The dashboard's feed; created at the first request."""
    guide: TourGuide | None = None
    """The tour's guide; created at the first request."""

    def open_dashboard(self, guide: TourGuide) -> tuple[ControlledCluster, Feed]:
        """See HasDashboard; the modules are loaded by the first request."""
        from anabranch.dashboard.collectors.cluster_rows import ClusterRows
        from anabranch.dashboard.feed import Feed

        def rules() -> Iterator[RuleRow]:
            return (one.row() for one in self.cluster.faults) if self.cluster.has_rules else iter(())

        feed = Feed(
            lambda tell: ClusterRows(self.cluster, tell, clock=self.clock, rules=rules),
            self.clock,
            self.events.publish,
        )
        self.events.on_event(feed.on_event)
        return dataclasses.replace(self, feed=feed, guide=guide), feed

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the cluster's time; tasks that it starts have that time, too."""
        return await (work if self.clock is None else self.clock.run(work))

    def admin(self) -> Admin:
        """An admin client with the credentials of a broker."""
        servers, security = self.cluster.inter_broker_security
        secured: SecurityArguments = {} if security is None else {"security": security}
        return Admin(servers, **secured)

    def producer(self) -> Producer:
        """A producer that keeps keys in order, with the credentials of a broker."""
        servers, security = self.cluster.inter_broker_security
        secured: SecurityArguments = {} if security is None else {"security": security}
        return Producer(servers, linger_ms=0, **secured)

    @property
    def faults(self) -> Faults:
        """The cluster's fault rules; from now on, their hits are events."""
        faults = self.cluster.faults
        faults.on_hit(self.events.on_hit)
        if self.journal is not None:
            faults.on_hit(self.journal.on_hit)
        return faults
