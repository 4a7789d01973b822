"""A blocking client for a cluster's journal, for synchronous Python tests.

assert control.journal.count(api="OffsetCommit", group="billing") == 1
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterator, Mapping
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
TIMED_OUT: Final = 408


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
        """Iterate over matching exchanges, kept and future, until the cluster ends."""
        newer = where.copy()
        while True:
            try:
                found = self.wait_for(timeout_s=LOOK_S, **newer)
            except ControlError as error:
                if error.status != TIMED_OUT:
                    raise
                continue
            for row in found:
                newer["after"] = max(newer.get("after", 0), row["number"])
                yield row

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
