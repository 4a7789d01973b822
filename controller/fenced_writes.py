"""Every write of a term: fenced by its controller epoch, and named as a step at which the controller can die.

All that a controller decides in office is written through here, so no write is without a fence, and tests that kill the
controller after each step leave none out. `candidacy` writes by itself to win and to leave office, because it then has
no term yet, or no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch.controller import failpoints
from anabranch.controller.candidacy import ControllerTenure, fenced
from anabranch.controller.zk.session import Op, Stat, ZkSession


class FencedWrites:
    """The writes of one term. `acted` is told of each step that was taken."""

    def __init__(self, session: ZkSession, term: ControllerTenure, acted: Callable[[str], None] | None) -> None:
        self._session = session
        self._term = term
        self._acted = acted

    async def commit(self, point: str, ops: Sequence[Op]) -> list[str | Stat | None]:
        """All operations or none, as this point of a step. KeyError for an unknown one; otherwise as `fenced`."""
        failpoints.step_of(point)  # before it is written: what has no name does not happen
        answers = await fenced(self._session, self._term, ops)
        self.taken(point)
        return answers

    def taken(self, point: str) -> None:
        """Report a point of a step that is no single transaction: it has several of them, or none."""
        failpoints.step_of(point)
        if self._acted is not None:
            self._acted(point)
