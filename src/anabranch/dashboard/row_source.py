"""The interface of what a feed collects from: a cluster in this process, or the agents of nodes in other processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from anabranch.dashboard.state_delta import StateSheet

Tell = Callable[..., None]
"""Called as `tell(kind, **detail)` for events that only a collection reveals: rebalances, gates, slow requests."""


class RowSource(Protocol):
    """Provides the rows of one cluster."""

    async def refresh(self) -> None:
        """Fetch what `collect` needs from other processes."""

    def collect(self, sheet: StateSheet) -> None:
        """Put the present rows."""

    def open(self) -> None:
        """Count requests from now on: a page is open."""

    def close(self) -> None:
        """Stop counting requests: no page is open."""

    def take_traffic(self) -> dict[str, Any] | None:
        """The requests since the last call, see `Traffic.take`; None if they are not counted."""
