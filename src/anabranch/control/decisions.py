"""Asks the front of a cluster whether a rule hits a request, where a rule's counts apply to all nodes together.

The front keeps a stream of questions open, and answers each with a request of its own: the agent opens no connection.
Without a front, or without an answer in time, the request is not hit, and a warning says so once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Annotated, Final, TypedDict

from anabranch.control.actions import UnknownNode
from anabranch.faults.active_rule import Decision

if TYPE_CHECKING:
    from anabranch.faults.active_rule import ActiveRule
    from anabranch.faults.matching import RequestView

log: Final = logging.getLogger(__name__)

ANSWER_S: Final = 2.0
"""How long a request waits for the decision of the front."""
NOT_HIT: Final = Decision(hit=False)


class QuestionRow(TypedDict):
    """A request that matches a rule, and waits for the front's decision."""

    id: Annotated[int, "the number of the question"]
    rule: Annotated[str, "the rule's name"]
    node: int
    api: str
    version: int
    client: Annotated[str | None, "the client id"]


class Decisions:
    """The open questions of one agent."""

    def __init__(self, on_undecided: Callable[[str, str], None], answer_s: float = ANSWER_S) -> None:
        """`on_undecided` is called with rule and reason, once until the next answer about the rule."""
        self._on_undecided = on_undecided
        self._answer_s = answer_s
        self._number = 0
        self._open: dict[int, tuple[QuestionRow, asyncio.Future[Decision]]] = {}
        self._stream: asyncio.Queue[QuestionRow | None] | None = None
        self._undecided: set[str] = set()

    @property
    def has_front(self) -> bool:
        """Whether a front follows the questions."""
        return self._stream is not None

    @property
    def rows(self) -> list[QuestionRow]:
        """The open questions."""
        return [row for row, _ in self._open.values()]

    async def decide(self, armed: ActiveRule, view: RequestView) -> Decision:
        """Ask the front about one request; see `Decide`."""
        name = armed.rule.name
        if self._stream is None:
            self._not_decided(name, "no front is connected")
            return NOT_HIT
        self._number += 1
        number, request = self._number, view.request
        row: QuestionRow = {
            "id": number,
            "rule": name,
            "node": view.at.node_id,
            "api": request.api.name,
            "version": request.version,
            "client": request.client_id,
        }
        answer = asyncio.get_running_loop().create_future()
        self._open[number] = row, answer
        self._stream.put_nowait(row)
        try:
            async with asyncio.timeout(self._answer_s):
                decision: Decision = await answer
        except TimeoutError:
            self._not_decided(name, f"the front has not answered within {self._answer_s:g} s")
            return NOT_HIT
        finally:
            del self._open[number]
        self._undecided.discard(name)
        return decision

    def answer(self, number: int, decision: Decision) -> None:
        """Answer a question. Raises UnknownNode if it is not open."""
        if number not in self._open:
            raise UnknownNode(
                f"question {number} is not open: its request waited for {self._answer_s:g} s, or has ended"
            )
        _, answer = self._open[number]
        if not answer.done():
            answer.set_result(decision)

    async def follow(self) -> AsyncGenerator[QuestionRow | None, None]:
        """Iterate over the open and later questions, after None at the start; an earlier iteration ends."""
        if self._stream is not None:
            self._stream.put_nowait(None)
        stream = self._stream = asyncio.Queue[QuestionRow | None]()
        for row in self.rows:
            stream.put_nowait(row)
        try:
            yield None
            while (new := await stream.get()) is not None:
                yield new
        finally:
            if self._stream is stream:
                self._stream = None

    def _not_decided(self, name: str, reason: str) -> None:
        if name not in self._undecided:
            self._undecided.add(name)
            log.warning("rule %s hits no request of this node: %s", name, reason)
            self._on_undecided(name, reason)
