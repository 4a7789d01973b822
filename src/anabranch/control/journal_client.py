"""A blocking client for a cluster's journal, for synchronous Python tests.

assert control.journal.count(api="OffsetCommit", group="billing") == 1
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from anabranch.control.control_error import ControlError
from anabranch.protocol.suggestion import suggest_arguments
from anabranch.runtime.private_files import write_private_file

if TYPE_CHECKING:
    from anabranch.journal.entry import ExchangeRow
    from anabranch.journal.query import JournalFilter

PATIENCE_S: Final = 60.0
LOOK_S: Final = 30.0
OPEN_LOOK_S: Final = 0.5
TIMED_OUT: Final = 408
SHOWN_IN_ROWS: Final = ("error", "rule", "outcome", "after", "limit")
"""The conditions that an exchange may only meet when it ends, or that are about the number of rows."""
OPEN: Final = "open"


@suggest_arguments
class JournalClient:
    """The last exchanges of a cluster as rows: `api`, `client_id`, `request`, `response`, `errors`, `rules`, ..."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def entries(self, **where: Unpack[JournalFilter]) -> list[ExchangeRow]:
        """Get the kept exchanges that match, the oldest first.

        Args:
            **where: api="Fetch", topic="orders", partition=1, group=, client_id=, error=, rule=, outcome=, after=,
                limit=: as for a rule. between_brokers=True for requests between brokers.

        Raises:
            ControlError: No exchange can match, or no journal is kept.
        """
        found: list[ExchangeRow] = self._ask("GET", f"/v1/journal?{_words(where)}")
        return found

    def count(self, **where: Unpack[JournalFilter]) -> int:
        """Count the exchanges that match; see `entries`."""
        return len(self.entries(**where))

    def wait_for(self, n: int = 1, timeout_s: float = 30.0, **where: Unpack[JournalFilter]) -> list[ExchangeRow]:
        """Wait until `n` exchanges match, and return them. ControlError (408) on timeout."""
        words = _words({**where, "count": n, "timeout": timeout_s})
        found: list[ExchangeRow] = self._ask("GET", f"/v1/journal/wait?{words}", patience_s=timeout_s + PATIENCE_S)
        return found

    def follow(self, **where: Unpack[JournalFilter]) -> Iterator[ExchangeRow]:
        """Iterate over matching exchanges, kept and future, until the cluster ends: each once, when it has ended."""
        following = Following(self.entries(**where), where)
        words = {name: one for name, one in where.items() if name not in SHOWN_IN_ROWS}
        while True:
            found = self._ask("GET", f"/v1/journal?{_words({**words, 'after': following.after})}")
            yield from following.take(found)
            self._wait_for_more(following, words)

    def _wait_for_more(self, following: Following, words: Mapping[str, Any]) -> None:
        """Wait for another exchange. While some are open, wait only briefly: no event reports their ends."""
        timeout_s = OPEN_LOOK_S if following.has_open else LOOK_S
        waited = {**words, "after": following.after, "count": following.known + 1, "timeout": timeout_s}
        try:
            self._ask("GET", f"/v1/journal/wait?{_words(waited)}", patience_s=timeout_s + PATIENCE_S)
        except ControlError as error:
            if error.status != TIMED_OUT:
                raise

    def save(self, path: str | Path, **where: Unpack[JournalFilter]) -> None:
        """Write exchanges to a capture file for Wireshark. ControlError if their bytes are not kept."""
        write_private_file(path, self._ask("GET", f"/v1/journal/capture?{_words(where)}"))

    def explain(self, exchange: ExchangeRow | int) -> list[str]:
        """Explain the outcome of an exchange, in sentences. ControlError (404) if it is no longer kept."""
        number = exchange if isinstance(exchange, int) else int(exchange["number"])
        lines: list[str] = self._ask("GET", f"/v1/journal/{number}/explain")["explained"]
        return lines

    def clear(self) -> None:
        """Clear the journal."""
        self._ask("DELETE", "/v1/journal")


class Following:
    """Which exchanges of a followed journal are new. One that begins earlier may end later.

    Args:
        kept: The exchanges that match now.
        where: The conditions.
    """

    def __init__(self, kept: Sequence[ExchangeRow], where: Mapping[str, Any]) -> None:
        self._where = where
        self.after = int(where.get("after", 0))
        """Exchanges up to this number have been shown."""
        if int(where.get("limit", 0)) and kept:
            self.after = kept[0]["number"] - 1
        self.has_open = False
        """Whether exchanges are open whose end, or beginning, no wait would notice."""
        self.known = 0
        """The number of exchanges after that number."""
        self._shown: set[int] = set()

    def take(self, rows: Sequence[ExchangeRow]) -> list[ExchangeRow]:
        """The rows to show, of those after the number."""
        waits_for_open = self._where.get("outcome") == OPEN
        still_open = [row["number"] for row in rows if row["outcome"] == OPEN and not waits_for_open]
        new = [row for row in rows if row["number"] not in self._shown and row["number"] not in still_open]
        self._shown |= {row["number"] for row in new}
        if rows:
            self.after = min(still_open) - 1 if still_open else rows[-1]["number"]
        self._shown = {one for one in self._shown if one > self.after}
        self.has_open = waits_for_open or bool(still_open)
        self.known = sum(row["number"] > self.after for row in rows)
        return [row for row in new if self._matches(row)]

    def _matches(self, row: ExchangeRow) -> bool:
        error, rule, outcome = (self._where.get(one) for one in ("error", "rule", "outcome"))
        return (
            (not error or error in row["errors"])
            and (not rule or rule in row["rules"])
            and outcome in (None, "", row["outcome"])
        )


def _words(where: Mapping[str, Any]) -> str:
    parameters = {
        name: ",".join(map(str, one))
        if isinstance(one, list | tuple)
        else str(one).lower()
        if isinstance(one, bool)
        else str(one)
        for name, one in where.items()
    }
    return urllib.parse.urlencode(parameters)
