"""The routes of the journal: query, await and clear it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Final, TypedDict, cast

from anabranch.clients.clock import time_of_day_clock
from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.controlled_cluster import ControlledCluster
from anabranch.control.route import TIMEOUT, ControlRequest, Done, Route, WaitTimedOut, timeout_s
from anabranch.journal.capture import capture
from anabranch.journal.entry import ExchangeRow
from anabranch.journal.query import WORDS, JournalFilter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anabranch.journal.explanation import ClusterEvent
    from anabranch.journal.journal import Journal


NO_JOURNAL: Final = "there is no journal; start the cluster with --control-journal 1000"


class ExchangesQuery(JournalFilter, total=False):
    """The exchanges to get."""

    bytes: Annotated[bool, "also the bytes of request and response in base64, for `anabranch replay`"]


class ExchangesWaitQuery(JournalFilter, total=False):
    """The exchanges to wait for."""

    count: Annotated[int, "the number of exchanges; 1 if left out"]
    timeout: float


class ExplanationRow(TypedDict):
    """The reasons for the outcome of an exchange."""

    number: Annotated[int, "the number of the exchange"]
    explained: Annotated[list[str], "the reasons, in sentences"]


async def get_journal(on: ControlledCluster, request: ControlRequest) -> list[ExchangeRow]:
    """Get the kept exchanges."""
    words = dict(request.query)
    with_bytes = words.pop("bytes", "") == "true"
    if with_bytes:
        _needs_bytes(_journal(on))
    return [one.row(with_bytes=with_bytes) for one in _journal(on).entries(**_filter(words))]


async def wait_for_exchanges(on: ControlledCluster, request: ControlRequest) -> list[ExchangeRow]:
    """Respond when enough exchanges match."""
    words = dict(request.query)
    count, patience_s = words.pop("count", "1"), timeout_s(words.pop("timeout", ""))
    if not count.isdecimal():
        raise ValueError(f"count is a number, not {count!r}")
    try:
        found = await _journal(on).wait_for(int(count), patience_s, **_filter(words))
    except TimeoutError as error:
        raise WaitTimedOut(str(error)) from None
    return [one.row() for one in found]


async def explain_exchange(on: ControlledCluster, request: ControlRequest) -> ExplanationRow:
    """Explain the outcome of one exchange."""
    return explanation(on.journal, request.words["number"])


def explanation(journal: Journal | None, number: str, events: Sequence[ClusterEvent] | None = None) -> ExplanationRow:
    """Explain an exchange, with these events if there are some. Raises ActionRefused or UnknownNode."""
    kept = _kept(journal)
    try:
        return {"number": int(number), "explained": kept.explain(int(number), events)}
    except (KeyError, ValueError):
        raise UnknownNode(f"no exchange {number} is kept; the newest is {kept.newest}") from None


async def get_capture(on: ControlledCluster, request: ControlRequest) -> bytes:
    """Get the exchanges as a capture file."""
    journal = _journal(on)
    _needs_bytes(journal)
    day_s = time_of_day_clock()() / 1000 - asyncio.get_running_loop().time()
    return capture(journal.entries(**_filter(request.query)), day_s)


def _filter(words: Mapping[str, str]) -> JournalFilter:
    """The query's words as a filter; `Query` parses the values, and refuses unknown words."""
    return cast("JournalFilter", words)


async def clear_journal(on: ControlledCluster, request: ControlRequest) -> Done:
    """Clear the journal."""
    _journal(on).clear()
    return {}


def _needs_bytes(journal: Journal) -> None:
    if not journal.keeps_frames:
        raise ActionRefused("the journal has no bytes; start the cluster with --control-frames")


def _journal(on: ControlledCluster) -> Journal:
    return _kept(on.journal)


def _kept(journal: Journal | None) -> Journal:
    if journal is None:
        raise ActionRefused(NO_JOURNAL)
    return journal


JOURNAL_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "GET",
        "/v1/journal",
        "The last exchanges, oldest first.",
        get_journal,
        query=ExchangesQuery,
        checks_query=True,
        query_help=WORDS,
    ),
    Route(
        "GET",
        "/v1/journal/wait",
        "Wait until there are this many exchanges; 408 at the timeout.",
        wait_for_exchanges,
        query=ExchangesWaitQuery,
        checks_query=True,
        query_help={**WORDS, **TIMEOUT},
        waits=True,
    ),
    Route(
        "GET",
        "/v1/journal/capture",
        "Exchanges as a capture for Wireshark (pcapng).",
        get_capture,
        query=JournalFilter,
        checks_query=True,
        query_help=WORDS,
        gives_file=True,
    ),
    Route("GET", "/v1/journal/{number}/explain", "Explain the outcome of one exchange.", explain_exchange),
    Route("DELETE", "/v1/journal", "Clear the journal.", clear_journal),
)
