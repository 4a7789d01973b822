"""The guided tour of a cluster elsewhere, for tests in Python that block.

for step in control.tour.play("leader"):
    assert all(claim["holds"] for claim in step["claims"])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from anabranch.control.control_error import ControlError

PATIENCE_S = 120.0
"""How long one step of a story may take."""


class TourClient:
    """Stories that drive the cluster, as rows: `title`, `text`, `look`, `deeds`, `claims`."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    @property
    def stories(self) -> list[dict[str, Any]]:
        """Every story: its name as `story`, `title`, `summary`, and how many `steps` it has."""
        found: list[dict[str, Any]] = self._ask("GET", "/v1/tour")["stories"]
        return found

    def play(self, story: str) -> Iterator[dict[str, Any]]:
        """A story step by step; what its name is, is in `stories`. The cluster is put right when the block ends.

        Raises:
            ControlError: There is no such story, it cannot be told now, or it could not go on.
        """
        told = self._ask("POST", f"/v1/tour/{story}", patience_s=PATIENCE_S)
        try:
            while not told["over"]:
                yield told
                told = self._ask("POST", "/v1/tour/next", patience_s=PATIENCE_S)
        finally:
            self._ask("DELETE", "/v1/tour", patience_s=PATIENCE_S)
        if "broken" in told:
            raise ControlError(409, f"the story could not go on: {told['broken']}")
