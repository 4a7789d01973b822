"""One exchange: what was asked, what came of it, and who had a hand in it."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.faults.conflicts import overridden_rules
from anabranch.faults.request_fields import levels_of
from anabranch.faults.rewriting import codes_in, rows_in
from anabranch.journal.plain import holds_records, plain
from anabranch.protocol.error_codes import error_codes
from anabranch.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from anabranch.faults.matching import Matcher, RequestView
    from anabranch.faults.request_fields import Row
    from anabranch.faults.rule import Rule
    from anabranch.journal.frames import Frames


class JournalEntry:
    """One exchange. Bodies with records are written down at once: their bytes belong to logs and connections."""

    __slots__ = (
        "_answer",
        "_asked",
        "_base",
        "_hit_by",
        "_rows",
        "at_s",
        "errors",
        "frames",
        "number",
        "outcome",
        "refusals",
        "rules",
        "took_s",
        "view",
    )

    def __init__(self, number: int, at_s: float, view: RequestView) -> None:
        self.number = number
        self.at_s = at_s
        self.view = view
        self.took_s: float | None = None
        """None while it is not over."""
        self.outcome = "open"
        """answered, unanswered (nothing was wanted, or nothing given), closed, given up; open."""
        self.errors: tuple[str, ...] = ()
        self.rules: list[str] = []
        """The rules of faults that have hit it, in the order in which they were asked."""
        self._hit_by: list[Rule] = []
        self.refusals: dict[str, list[Row]] = {}
        """Error -> what was refused with it."""
        self.frames: Frames | None = None
        """Its bytes, if they are kept."""
        self._answer: Any = None
        self._rows: list[Row] = []
        self._base = view.base
        self._asked: Any = None
        request = view.request
        if holds_records(type(request.body)):
            self._asked = plain(request.body, request.version)
            view.forget_body()

    def hit_by(self, rule: Rule) -> None:
        """A rule has hit it."""
        self.rules.append(rule.name)
        self._hit_by.append(rule)

    @property
    def overruled(self) -> list[str]:
        """Those of its rules that were not heard, because another had the last word."""
        return overridden_rules(self._hit_by, (*self.view.rows, *self._rows)) if len(self._hit_by) > 1 else []

    def end(self, at_s: float, outcome: str, response: Any) -> None:
        """It is over."""
        self.took_s = at_s - self.at_s
        self.outcome = outcome
        if response is None:
            return
        request, view = self.view.request, self.view
        self.errors = tuple(sorted({ErrorCode(code).name for code in error_codes(response, type(response)) if code}))
        for level in levels_of(request.api, request.version):
            self._rows += rows_in(view.names, response, request.version, level, self._base)
            if self.errors:
                for row, code in codes_in(view.names, response, request.version, level, self._base):
                    self.refusals.setdefault(ErrorCode(code).name, []).append(row)
        self._answer = plain(response, request.version) if holds_records(type(response)) else response

    def is_about(self, matcher: Matcher) -> bool:
        """Whether this is what a rule would be about, by what was asked or answered."""
        request, view = self.view.request, self.view
        if not matcher.is_about(request.api.key, request.version, request.client_id, view.peer):
            return False
        if view.between_brokers != matcher.between_brokers:
            return False
        return not matcher.names_rows or any(map(matcher.surely_means, (*view.rows, *self._rows)))

    @property
    def api(self) -> str:
        """What was asked."""
        return self.view.request.api.name

    @property
    def hit_rules(self) -> Sequence[Rule]:
        """The rules that have hit it."""
        return self._hit_by

    def named(self, kind: str) -> set[Any]:
        """All that was asked or answered of a kind: topics, groups, transactional ids."""
        return {row[kind] for row in (self._base, *self.view.rows, *self._rows) if row.get(kind) is not None}

    def leaders_in_response(self, topic: str, partition: int) -> Iterator[tuple[int, int]]:
        """Leader and epoch of a partition, if this is a Metadata that tells them."""
        if self.api != "Metadata" or self._answer is None:
            return
        for one in getattr(self._answer, "topics", ()):
            if one.name == topic:
                yield from (
                    (row.leader_id, row.leader_epoch) for row in one.partitions if row.partition_index == partition
                )

    def row(self, *, with_bytes: bool = False) -> dict[str, Any]:
        """For a program; with the bytes of request and answer in base64, if they are wanted and kept."""
        told = self._row()
        if with_bytes:
            frames = self.frames
            told["bytes"] = frames and {"request": _base64(frames.asked), "response": _base64(frames.answered)}
        return told

    def _row(self) -> dict[str, Any]:
        request, peer = self.view.request, self.view.peer
        asked, answer = self._asked, self._answer
        if asked is None and request.body is not None:
            asked = plain(request.body, request.version)
        if answer is not None and not isinstance(answer, dict):
            answer = plain(answer, request.version)
        return {
            "number": self.number,
            "at": round(self.at_s, 6),
            "ms": None if self.took_s is None else round(self.took_s * 1000, 3),
            "node": self.view.at.node_id,
            "peer": str(peer),
            "principal": peer.principal,
            "client_id": request.client_id,
            "api": request.api.name,
            "version": request.version,
            "correlation_id": request.correlation_id,
            "outcome": self.outcome,
            "errors": list(self.errors),
            "rules": self.rules,
            "overruled": self.overruled,
            "request": asked,
            "response": answer,
        }


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
