"""What the control plane of one cluster works on."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from anabranch.clients.admin import Admin
from anabranch.clients.producer.producer import Producer

if TYPE_CHECKING:
    from anabranch.clients.security import SecurityArguments
    from anabranch.clock.cluster_clock import ClusterClock
    from anabranch.cluster.in_process import Cluster
    from anabranch.control.actions import Actions
    from anabranch.control.events import Events
    from anabranch.control.states import States
    from anabranch.control.telemetry import ClientTelemetry
    from anabranch.dashboard.feed import Feed
    from anabranch.faults.faults import Faults
    from anabranch.journal.journal import Journal


T = TypeVar("T")


class TourGuide(Protocol):
    """Tells stories to a cluster, one at a time; see `tour.guide`."""

    @property
    def row(self) -> dict[str, Any] | None:
        """Where the story is that is told now."""

    async def begin(self, on: ControlledCluster, name: str) -> dict[str, Any]:
        """The first step of a story."""

    async def go_on(self) -> dict[str, Any]:
        """The next step."""

    async def end(self) -> None:
        """No more of it."""


class Controllable(Protocol):
    """What a control plane may stand in front of."""

    @property
    def events(self) -> Events:
        """What has happened."""

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something to it."""


@dataclass(frozen=True, slots=True)
class ControlledCluster:
    """A cluster, what may be done to it, and what has happened in it."""

    cluster: Cluster
    actions: Actions
    events: Events
    journal: Journal | None = None
    clock: ClusterClock | None = None
    """The cluster's, if it has a time of its own."""
    states: States | None = None
    telemetry: ClientTelemetry | None = None
    """What clients push of their own metrics."""
    feed: Feed | None = None
    """What the dashboard is sent; there is one as soon as somebody has asked for anything."""
    guide: TourGuide | None = None
    """Who tells the stories of the tour; likewise."""

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something to the cluster, in its time: what it begins has that time, too."""
        return await (work if self.clock is None else self.clock.run(work))

    def admin(self) -> Admin:
        """An administrator of the cluster, who is let in as its brokers are by one another."""
        servers, security = self.cluster.inter_broker_security
        secured: SecurityArguments = {} if security is None else {"security": security}
        return Admin(servers, **secured)

    def producer(self) -> Producer:
        """A producer that keeps keys in order, let in likewise."""
        servers, security = self.cluster.inter_broker_security
        secured: SecurityArguments = {} if security is None else {"security": security}
        return Producer(servers, linger_ms=0, **secured)

    @property
    def faults(self) -> Faults:
        """The cluster's rules, whose hits are events from now on."""
        faults = self.cluster.faults
        faults.on_hit(self.events.on_hit)
        if self.journal is not None:
            faults.on_hit(self.journal.on_hit)
        return faults
