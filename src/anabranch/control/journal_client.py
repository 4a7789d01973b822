"""The journal of a cluster elsewhere, for tests in Python that block.

assert control.journal.count(api="OffsetCommit", group="billing") == 1
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from anabranch.control.control_error import ControlError
from anabranch.runtime.private_files import write_private_file

if TYPE_CHECKING:
    from anabranch.journal.query import JournalFilter

PATIENCE_S: Final = 60.0
LOOK_S: Final = 30.0
TIMED_OUT: Final = 408


class JournalClient:
    """The last exchanges of a cluster, as rows: `api`, `client_id`, `request`, `response`, `errors`, `rules`, ..."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def entries(self, **where: Unpack[JournalFilter]) -> list[dict[str, Any]]:
        """What is kept, the oldest first.

        Args:
            **where: api="Fetch", topic="orders", partition=1, group=, client_id=, error=, rule=, outcome=, after=,
                limit=: as for a rule. between_brokers=True for what brokers ask each other.

        Raises:
            ControlError: No exchange could ever be so, or no journal is kept.
        """
        found: list[dict[str, Any]] = self._ask("GET", f"/v1/journal?{_words(where)}")
        return found

    def count(self, **where: Unpack[JournalFilter]) -> int:
        """How many exchanges are so; see `entries`."""
        return len(self.entries(**where))

    def wait_for(self, n: int = 1, timeout_s: float = 30.0, **where: Unpack[JournalFilter]) -> list[dict[str, Any]]:
        """Wait until so many exchanges are so, and return them. ControlError (408) if they are not in time."""
        words = _words({**where, "count": n, "timeout": timeout_s})
        found: list[dict[str, Any]] = self._ask("GET", f"/v1/journal/wait?{words}", patience_s=timeout_s + PATIENCE_S)
        return found

    def follow(self, **where: Unpack[JournalFilter]) -> Iterator[dict[str, Any]]:
        """What is kept, and what comes, until the cluster ends."""
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
        """Write exchanges to a capture for Wireshark. ControlError if their bytes are not kept."""
        write_private_file(path, self._ask("GET", f"/v1/journal/capture?{_words(where)}"))

    def explain(self, exchange: Mapping[str, Any] | int) -> list[str]:
        """Why an exchange ended as it did, in sentences. ControlError (404) if it is not kept any more."""
        number = exchange if isinstance(exchange, int) else int(exchange["number"])
        told: list[str] = self._ask("GET", f"/v1/journal/{number}/explain")["explained"]
        return told

    def clear(self) -> None:
        """Forget all."""
        self._ask("DELETE", "/v1/journal")


def _words(where: Mapping[str, Any]) -> str:
    said = {
        name: ",".join(map(str, one))
        if isinstance(one, list | tuple)
        else str(one).lower()
        if one is True
        else str(one)
        for name, one in where.items()
    }
    return urllib.parse.urlencode(said)
