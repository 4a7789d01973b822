"""One exchange of the journal: the request, the response, and the rules that hit it."""

from __future__ import annotations

import base64
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, NotRequired, TypedDict

from anabranch.faults.conflicts import overridden_rules
from anabranch.faults.request_fields import levels_of
from anabranch.faults.rewriting import codes_in, rows_in
from anabranch.journal.plain import plain, records_bytes, without_records
from anabranch.protocol.codec import decode, encode
from anabranch.protocol.error_codes import error_codes
from anabranch.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from anabranch.faults.matching import Matcher, RequestView
    from anabranch.faults.request_fields import Row
    from anabranch.faults.rule import Rule
    from anabranch.journal.frames import Frames


KEPT_BYTES: Final = 4096
"""The size of record batches up to which a request is kept as it is, and a response encoded, which is quicker."""


class ExchangeBytes(TypedDict):
    """The bytes of an exchange, in base64."""

    request: str
    response: str


class ExchangeRow(TypedDict):
    """An exchange of the journal. Request and response have the fields of Kafka's messages."""

    number: int
    at: Annotated[float, "the clock of events, in seconds"]
    ms: Annotated[float | None, "the duration in milliseconds; null while it is open"]
    node: int
    peer: Annotated[str, "the client's host and port"]
    principal: str
    client_id: str | None
    api: str
    version: int
    correlation_id: int
    outcome: Annotated[str, "answered, unanswered, closed, given up, or open"]
    errors: Annotated[list[str], "the error codes at all levels of the response"]
    rules: Annotated[list[str], "the fault rules that hit it"]
    overruled: Annotated[list[str], "the rules without effect, because another rule overrode them"]
    request: dict[str, Any] | None
    response: dict[str, Any] | None
    bytes: NotRequired[Annotated[ExchangeBytes | None, "if requested; null if they are not kept"]]


class Encoded(NamedTuple):
    """A response of a class, encoded."""

    kind: type[Any]
    content: bytes


class JournalEntry:
    """One exchange. Its messages are read when a property that needs them is first read.

    Large requests with records are copied without these, because they would keep their frames. Responses with records
    are encoded, or copied without these, because logs own their bytes. Such a copy costs 2 us, and 1 us for each
    partition. Topic ids are looked up at once, because topics may be deleted.
    """

    __slots__ = (
        "_answer",
        "_errors",
        "_hit_by",
        "_refusals",
        "_response",
        "_rows",
        "at_s",
        "frames",
        "number",
        "outcome",
        "rules",
        "took_s",
        "view",
    )

    def __init__(self, number: int, at_s: float, view: RequestView) -> None:
        self.number = number
        self.at_s = at_s
        self.view = view
        self.took_s: float | None = None
        """None while the exchange is open."""
        self.outcome = "open"
        """open; then answered, unanswered (no response expected, or none sent), closed, or given up."""
        self.rules: list[str] = []
        """The fault rules that hit the exchange, in the order of evaluation."""
        self._hit_by: list[Rule] = []
        self.frames: Frames | None = None
        """The bytes, if they are kept."""
        self._response: Any = None
        """The response, until it is read."""
        self._answer: Any = None
        self._errors: tuple[str, ...] = ()
        self._refusals: dict[str, list[Row]] = {}
        self._rows: list[Row] = []
        request = view.request
        view.look_up_topics(request.body)
        if records_bytes(request.body) > KEPT_BYTES:
            view.request = dataclasses.replace(request, body=without_records(request.body))

    def hit_by(self, rule: Rule) -> None:
        """Record a rule's hit."""
        self.rules.append(rule.name)
        self._hit_by.append(rule)

    @property
    def overruled(self) -> list[str]:
        """The rules that hit without effect, because another rule overrode them."""
        return overridden_rules(self._hit_by, tuple(self.rows)) if len(self._hit_by) > 1 else []

    def end(self, at_s: float, outcome: str, response: Any) -> None:
        """Complete the exchange."""
        self.took_s = at_s - self.at_s
        self.outcome = outcome
        if response is None:
            return
        self._response = response
        view = self.view
        view.look_up_topics(response)
        if size_bytes := records_bytes(response):
            if size_bytes <= KEPT_BYTES:
                self._response = Encoded(type(response), encode(response, view.request.version))
            else:
                self._response = without_records(response)

    def _read(self) -> None:
        """Read the errors and rows of the response, if that was not done yet."""
        response, self._response = self._response, None
        if response is None:
            return
        request, view, base = self.view.request, self.view, self.view.base
        if isinstance(response, Encoded):
            response = without_records(decode(response.kind, request.version, response.content)[0])
        self._errors = tuple(sorted({ErrorCode(code).name for code in error_codes(response, type(response)) if code}))
        for level in levels_of(request.api, request.version):
            self._rows += rows_in(view.names, response, request.version, level, base)
            if self._errors:
                for row, code in codes_in(view.names, response, request.version, level, base):
                    self._refusals.setdefault(ErrorCode(code).name, []).append(row)
        self._answer = response

    @property
    def errors(self) -> tuple[str, ...]:
        """The error codes at all levels of the response."""
        self._read()
        return self._errors

    @property
    def refusals(self) -> Mapping[str, list[Row]]:
        """Error -> the rows that were refused with it."""
        self._read()
        return self._refusals

    @property
    def base(self) -> Row:
        """The properties of the request as a whole."""
        return self.view.base

    @property
    def rows(self) -> Iterator[Row]:
        """The rows of request and response."""
        self._read()
        return itertools.chain(self.view.rows, self._rows)

    @property
    def answer(self) -> Any:
        """The response, without records; None without one."""
        self._read()
        return self._answer

    def is_about(self, matcher: Matcher) -> bool:
        """Whether a rule's conditions match the exchange, by request or response."""
        request, view = self.view.request, self.view
        if not matcher.is_about(request.api.key, request.version, request.client_id, view.peer):
            return False
        if view.between_brokers != matcher.between_brokers or not matcher.uses_link(view):
            return False
        return not matcher.names_rows or any(map(matcher.surely_matches, self.rows))

    @property
    def api(self) -> str:
        """The API's name."""
        return self.view.request.api.name

    @property
    def hit_rules(self) -> Sequence[Rule]:
        """The rules that hit the exchange."""
        return self._hit_by

    def names_of(self, kind: str) -> set[Any]:
        """All values of a kind (topics, groups, transactional ids) in request and response."""
        return {row[kind] for row in (self.base, *self.rows) if row.get(kind) is not None}

    def leaders_in_response(self, topic: str, partition: int) -> Iterator[tuple[int, int]]:
        """Leaders and epochs of a partition in a Metadata response."""
        if self.api != "Metadata" or self.answer is None:
            return
        for one in getattr(self.answer, "topics", ()):
            if one.name == topic:
                yield from (
                    (row.leader_id, row.leader_epoch) for row in one.partitions if row.partition_index == partition
                )

    def coordinator_refusals(self, key: str) -> Iterator[str]:
        """The messages with which a FindCoordinator response refuses a key."""
        answer = self.answer if self.api == "FindCoordinator" else None
        if answer is None:
            return
        for one in answer.coordinators or [answer]:
            if one.error_code and one.error_message and (one is answer or one.key == key):
                yield one.error_message

    def messages(self, code: str) -> list[str]:
        """The different texts with which the response explains an error code."""
        answer = self.answer
        if answer is None:
            return []
        return list(dict.fromkeys(_messages(plain(answer, self.view.request.version), ErrorCode[code])))

    def row(self, *, with_bytes: bool = False) -> ExchangeRow:
        """The exchange as a JSON row; with the bytes in base64, if requested and kept."""
        fields = self._row()
        if with_bytes:
            fields["bytes"] = None if self.frames is None else _in_base64(self.frames)
        return fields

    def _row(self) -> ExchangeRow:
        request, peer = self.view.request, self.view.peer
        answer = self.answer
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
            "request": None if request.body is None else plain(request.body, request.version),
            "response": None if answer is None else plain(answer, request.version),
        }


def _in_base64(frames: Frames) -> ExchangeBytes:
    return {"request": _base64(frames.request_bytes), "response": _base64(frames.answered)}


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _messages(content: Any, code: int) -> Iterator[str]:
    """The error messages beside an error code, at all levels of a response."""
    if isinstance(content, list):
        for one in content:
            yield from _messages(one, code)
    elif isinstance(content, dict):
        if content.get("error_code") == code and content.get("error_message"):
            yield content["error_message"]
        for one in content.values():
            yield from _messages(one, code)
