"""Writes of one tenure, fenced by its controller epoch; each is a named step at which the controller can crash.

Every decision of an elected controller is written through this class, so no write lacks a fence, and tests that kill
the controller after each step miss none. `candidacy` writes directly to win and to resign, because it has no tenure
then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch.controller import failpoints
from anabranch.controller.candidacy import ControllerTenure, commit_fenced
from anabranch.controller.zk.session import Op, Stat, ZkSession


class FencedWrites:
    """The writes of one tenure. `acted` is called for each completed step."""

    def __init__(self, session: ZkSession, term: ControllerTenure, acted: Callable[[str], None] | None) -> None:
        self._session = session
        self._term = term
        self._acted = acted

    async def commit(self, point: str, ops: Sequence[Op]) -> list[str | Stat | None]:
        """Commit all operations or none, as this point of a step. Raises KeyError for an unknown one; otherwise as
        `fenced`.
        """
        failpoints.step_of(point)  # check the name before the write
        answers = await commit_fenced(self._session, self._term, ops)
        self.taken(point)
        return answers

    def taken(self, point: str) -> None:
        """Report a point of a step that spans several transactions, or none."""
        failpoints.step_of(point)
        if self._acted is not None:
            self._acted(point)
