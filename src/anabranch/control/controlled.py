"""What the control plane of one cluster works on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.cluster import Cluster
    from anabranch.control.actions import Actions
    from anabranch.control.events import Events


@dataclass(frozen=True, slots=True)
class Controlled:
    """A cluster, what may be done to it, and what has happened in it."""

    cluster: Cluster
    actions: Actions
    events: Events
