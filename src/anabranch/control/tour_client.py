"""A blocking client for a cluster's guided tour, for synchronous Python tests.

for step in control.tour.play("leader"):
    assert all(claim["holds"] for claim in step["claims"])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from anabranch.control.control_error import ControlError

if TYPE_CHECKING:
    from anabranch.control.tour_rows import StoryRow, TourRow

PATIENCE_S = 120.0
"""The timeout of one step."""


class TourClient:
    """Stories on the cluster, as rows: `title`, `text`, `look`, `deeds`, `claims`."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    @property
    def stories(self) -> list[StoryRow]:
        """Get every story: its name as `story`, `title`, `summary`, and the number of `steps`."""
        found: list[StoryRow] = self._ask("GET", "/v1/tour")["stories"]
        return found

    def play(self, story: str) -> Iterator[TourRow]:
        """Play a story of `stories` step by step; the cluster is restored when the iteration ends.

        Raises:
            ControlError: The story does not exist, cannot be played now, or failed.
        """
        step: TourRow = self._ask("POST", f"/v1/tour/{story}", patience_s=PATIENCE_S)
        try:
            while not step["over"]:
                yield step
                step = self._ask("POST", "/v1/tour/next", patience_s=PATIENCE_S)
        finally:
            self._ask("DELETE", "/v1/tour", patience_s=PATIENCE_S)
        if "broken" in step:
            raise ControlError(409, f"the story could not continue: {step['broken']}")
