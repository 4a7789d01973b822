"""What the control plane of one cluster works on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.cluster import Cluster
    from anabranch.control.actions import Actions
    from anabranch.control.events import Events
    from anabranch.faults.faults import Faults
    from anabranch.journal.journal import Journal


@dataclass(frozen=True, slots=True)
class Controlled:
    """A cluster, what may be done to it, and what has happened in it."""

    cluster: Cluster
    actions: Actions
    events: Events
    journal: Journal | None = None

    @property
    def faults(self) -> Faults:
        """The cluster's rules, whose hits are events from now on."""
        faults = self.cluster.faults
        faults.on_hit(self.events.on_hit)
        if self.journal is not None:
            faults.on_hit(self.journal.on_hit)
        return faults
