"""Queries of the journal: the conditions of fault rules, and some of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin

from anabranch.faults.matching import Matcher
from anabranch.faults.rule import FIELDS, HINTS, WHERE
from anabranch.faults.rule_fields import RequestFilter
from anabranch.faults.rule_json import InvalidRule, from_json
from anabranch.faults.validation import check
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.suggestion import suggest

if TYPE_CHECKING:
    from collections.abc import Collection

    from anabranch.journal.entry import JournalEntry

Outcome = Literal["answered", "unanswered", "closed", "given up", "open"]
OUTCOMES: Final[tuple[str, ...]] = get_args(Outcome)
ERRORS: Final = tuple(name for name, code in ErrorCode.__members__.items() if code is not ErrorCode.NONE)
BOOLEANS: Final = {"true": True, "false": False}
NOT_HERE: Final = ("name", "first", "step")
PLACES: Final[Mapping[str, str]] = {
    field.name: field.metadata["help"]
    for field in FIELDS
    if field.metadata["part"] == WHERE and field.name not in NOT_HERE
}
"""The conditions of rules that the journal accepts -> their meanings."""
WORDS: Final[Mapping[str, str]] = {
    **PLACES,
    "error": "answered with this error code, at any level",
    "rule": "hit by this rule",
    "outcome": ", ".join(OUTCOMES),
    "after": "only exchanges after this number",
    "limit": "only the last N exchanges",
}


class JournalFilter(RequestFilter, total=False):
    """The conditions as keyword arguments, for type checkers; `WORDS` explains them."""

    error: str
    rule: str
    outcome: Outcome
    after: int
    limit: int


@dataclass(frozen=True, slots=True)
class Query:
    """Conditions on exchanges."""

    matcher: Matcher
    brokers: tuple[int, ...] = ()
    error: str = ""
    rule: str = ""
    outcome: str = ""
    after: int = 0
    limit: int = 0

    @classmethod
    def of(cls, words: Mapping[str, Any], brokers: Collection[int]) -> Query:
        """Parse the conditions of a request or call. InvalidRule names the error."""
        if unknown := words.keys() - WORDS.keys():
            raise InvalidRule(f"unknown filters: {', '.join(sorted(unknown))}; {suggest(min(unknown), WORDS)}")
        rule = from_json({"hold": True, **{name: read(name, words[name]) for name in PLACES if name in words}})
        check(rule, brokers)
        error, outcome = str(words.get("error", "")), str(words.get("outcome", ""))
        if error and error not in ERRORS:
            raise InvalidRule(f"unknown error {error!r}; {suggest(error, ERRORS)}")
        if outcome and outcome not in OUTCOMES:
            raise InvalidRule(f"outcome is {', '.join(OUTCOMES[:-1])} or {OUTCOMES[-1]}, not {outcome!r}")
        return cls(
            Matcher(rule),
            brokers=rule.brokers,
            error=error,
            rule=str(words.get("rule", "")),
            outcome=outcome,
            after=_count("after", words.get("after", 0)),
            limit=_count("limit", words.get("limit", 0)),
        )

    def matches(self, entry: JournalEntry) -> bool:
        """Whether an exchange matches."""
        return (
            entry.number > self.after
            and (not self.brokers or entry.view.at.node_id in self.brokers)
            and (not self.error or self.error in entry.errors)
            and (not self.rule or self.rule in entry.rules)
            and (not self.outcome or self.outcome == entry.outcome)
            and entry.is_about(self.matcher)
        )


def read(name: str, value: Any) -> Any:
    """Convert a value from a URL to its JSON form: lists from comma-separated text, booleans from text."""
    hint = HINTS[name]
    if not isinstance(value, str):
        return value
    if get_origin(hint) is tuple:
        return [_number(name, one) if get_args(hint)[0] is int else one for one in value.split(",")]
    if hint is not bool:
        return value
    if value not in BOOLEANS:
        raise InvalidRule(f"{name} is {' or '.join(BOOLEANS)}, not {value!r}")
    return BOOLEANS[value]


def _count(name: str, value: str | int) -> int:
    number = _number(name, value)
    if number < 0:
        raise InvalidRule(f"{name} is at least 0, not {number}")
    return number


def _number(name: str, value: str | int) -> int:
    try:
        return int(value)
    except ValueError:
        raise InvalidRule(f"{name} is a number, not {value!r}") from None
