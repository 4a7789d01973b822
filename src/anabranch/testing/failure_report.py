"""The cluster's part in the report of a failed test: rules with their hits, the last exchanges, the last events.

It is limited to 40 lines, because more would hide the assertion. Everything else goes to a file.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.journal.exchange_line import exchange_line

Row = Mapping[str, Any]
RULES_SHOWN: Final = 6
EXCHANGES_SHOWN: Final = 20
EVENTS_SHOWN: Final = 8
OF_NO_INTEREST: Final = ("ApiVersions", "SaslHandshake", "SaslAuthenticate")
COMPARED: Final = ("node", "client_id", "api", "version", "errors", "outcome", "rules")
ADMIN_CLIENT: Final = "anabranch-admin"


@dataclass(frozen=True, slots=True)
class ReportStart:
    """The newest event and exchange, by number, and the rules that were removed, when a test began."""

    event: int = 0
    exchange: int = 0
    removed: Sequence[Row] = ()


@dataclass(frozen=True, slots=True)
class FailureReport:
    """The rows of a cluster since a test began, each kind in order of time."""

    rules: Sequence[Row] = ()
    exchanges: Sequence[Row] = ()
    events: Sequence[Row] = ()
    unreachable: str = field(default="")
    """The reason for missing rows."""

    def sections(self) -> Iterator[tuple[str, str]]:
        """Return titles and texts; empty sections are left out."""
        clients = [row for row in self.exchanges if is_of_test(row)]
        for title, lines in (
            ("cluster", [self.unreachable] if self.unreachable else []),
            ("rules", _last(RULES_SHOWN, map(rule_line, self.rules))),
            ("exchanges", _last(EXCHANGES_SHOWN, fold(clients))),
            ("events", _last(EVENTS_SHOWN, map(event_line, events_of_test(self.events)))),
        ):
            if lines:
                yield title, "\n".join(lines)

    def json_lines(self) -> Iterator[str]:
        """Return every row, with its kind."""
        for kind, rows in (("rule", self.rules), ("exchange", self.exchanges), ("event", self.events)):
            for row in rows:
                yield json.dumps({"row": kind, **row})


def is_of_test(exchange: Row) -> bool:
    """Whether an exchange shows an action of the test's clients, and not their connection or setup."""
    return exchange["api"] not in OF_NO_INTEREST and exchange["client_id"] != ADMIN_CLIENT


def fold(exchanges: Iterable[Row]) -> Iterator[str]:
    """Format exchanges; of equal ones in a row, only the last with their number."""
    for _, alike in itertools.groupby(exchanges, lambda row: [row[name] for name in COMPARED]):
        *others, last = alike
        yield exchange_line(last) + (f"  {1 + len(others)} times" if others else "")


def events_of_test(events: Iterable[Row]) -> Iterator[Row]:
    """Leave out events of internal topics, and the first leader and ISR of each new partition."""
    created = set()
    for row in events:
        partition = (row.get("topic"), row.get("partition"))
        if row["kind"] == "leader" and row.get("leader_epoch") == 0:
            created.add(partition)
        elif row["kind"] == "isr" and partition in created:
            created.remove(partition)
        elif not str(row.get("topic", "")).startswith("__"):
            yield row


def rule_line(row: Row) -> str:
    """Format a rule with its hits."""
    fields = {name: value for name, value in row["rule"].items() if name != "name"}
    return f"{row['name']}: {row['hits']} hits in {row['met']} requests  {json.dumps(fields)}"


def event_line(row: Row) -> str:
    """Format an event with its time and details."""
    details = (f"{name}={value}" for name, value in row.items() if name not in ("number", "at", "kind"))
    return "  ".join([f"{row['at']:12.3f}", row["kind"], *details])


def _last(count: int, lines: Iterable[str]) -> list[str]:
    return list(lines)[-count:]
